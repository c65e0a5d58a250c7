"""What tests of container engines share: a user without rights, environments of a test image, what a container left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cordee.environment.document import Environment, Mount, Root

UID = 1000
# Before a command line, as root: a user without rights, who reaches the interpreter only through folders open to all.
AS_USER = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
ENV = {"PATH": "/bin:/usr/bin:/usr/sbin:/sbin", "HOME": "/home/me"}


def environment_in(images: Path, kind: str = "folder", **fields: Any) -> Environment:
    """Return an environment of `images`/root or, for `squashfs`, `images`/root.sqsh; `host`: of no image."""
    path = {"folder": str(images / "root"), "squashfs": str(images / "root.sqsh"), "host": ""}[kind]
    return Environment(name="test", image=path, root=Root(kind, path), **fields)


def mounts(*texts: str) -> tuple[Mount, ...]:
    """Return mounts from `SOURCE:TARGET[:FLAG+FLAG]`."""
    parts = [text.split(":") for text in texts]
    return tuple(Mount(part[0], part[1], tuple(part[2].split("+")) if len(part) > 2 else ()) for part in parts)


def left_behind(marker: str) -> list[str]:
    """Return what is left of containers whose mounts or command lines hold `marker`: mounts, processes, loop devices."""
    found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if marker in line]
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = marker in (folder / "mountinfo").read_text(errors="replace")
        except OSError:
            continue
        if marker in line or inside:
            found.append(f"{folder.name} {line}")
    for device in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            held = marker in device.read_text()
        except OSError:
            continue
        if held:
            found.append(str(device))
    return found
