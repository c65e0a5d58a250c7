"""What tests of container engines share: a user without rights, environments of a test image, what a container left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import cordee
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment

UID = 1000
# Before a command line, as root: a user without rights, who reaches the interpreter only through folders open to all.
AS_USER = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
ENV = {"PATH": "/bin:/usr/bin:/usr/sbin:/sbin", "HOME": "/home/me"}

_ENDING_S = 3.0
_NO_USER_NAMESPACES = """
import os, sys
from cordee.systems.environments.node.engines.namespace import kernel
up, mapped = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    kernel.unshare(kernel.NEWUSER)
    os.write(up[1], b"x")
    os.read(mapped[0], 1)
    os.setresuid(0, 0, 0)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.execvp(sys.argv[1], sys.argv[1:])
os.read(up[0], 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write(f"0 0 {UID + 1}")
os.write(mapped[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def without_user_namespaces() -> list[str]:
    """Return the words before a command that run it, called by root, as a user on a machine that has none left to give.

    The command finds this library through the variables that it is given.
    """
    source = str(Path(cordee.__file__).parent.parent)
    script = f"import sys; sys.path.insert(0, {source!r}); UID = {UID}\n{_NO_USER_NAMESPACES}"
    return [sys.executable, "-c", script]


def environment_in(images: Path, kind: str = "folder", **fields: Any) -> Environment:
    """Return an environment of `images`/root or, for `squashfs`, `images`/root.sqsh; `host`: of no image."""
    path = {"folder": str(images / "root"), "squashfs": str(images / "root.sqsh"), "host": ""}[kind]
    return Environment(name="test", image=path, root=ContainerRoot(kind, path), **fields)


def mounts(*texts: str) -> tuple[ContainerMount, ...]:
    """Return mounts from `SOURCE:TARGET[:FLAG+FLAG]`."""
    parts = [text.split(":") for text in texts]
    return tuple(ContainerMount(part[0], part[1], tuple(part[2].split("+")) if len(part) > 2 else ()) for part in parts)


def left_behind(marker: str) -> list[str]:
    """Return what is left of containers whose mounts or command lines hold `marker`: mounts, processes, loop devices.

    What is ending has a moment to do so.
    """
    deadline = time.monotonic() + _ENDING_S
    while (found := _left_now(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _left_now(marker: str) -> list[str]:
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
