"""Small real images, made on the spot: a root of busybox as a folder and as a squashfs file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Where a container engine or a program expects a folder; /tmp is open to all.
FOLDERS = (
    "bin",
    "dev",
    "etc",
    "home",
    "lib",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/bin",
    "usr/lib",
    "var",
)
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
GROUP = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"


def busybox() -> Path:
    """Return the machine's static busybox.

    Raises:
        FileNotFoundError: there is none (Debian: busybox-static).
    """
    found = shutil.which("busybox")
    if found is None:
        raise FileNotFoundError("busybox is not on PATH; Debian's package is busybox-static")
    return Path(found)


def busybox_root(folder: Path) -> Path:
    """Make a root of some 2 MB in `folder`: busybox, a link for each of its commands in /bin, /etc/passwd and /etc/group.

    It is readable by every user. Returns `folder`, absolute.

    Raises:
        FileNotFoundError: there is no busybox.
        FileExistsError: the folder holds a root already.
    """
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    program = folder / "bin/busybox"
    shutil.copyfile(busybox(), program)
    program.chmod(0o755)
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in sorted({*listed, "sh"} - {"busybox"}):
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "usr/bin/env").symlink_to("/bin/busybox")
    (folder / "etc/passwd").write_text(PASSWD)
    (folder / "etc/group").write_text(GROUP)
    (folder / "etc/os-release").write_text('NAME="busybox"\nID=busybox\nPRETTY_NAME="busybox, made for tests"\n')
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and path.name != "tmp":
            path.chmod(0o755)
    return folder.absolute()


def squashfs_of(folder: Path, path: Path, options: Iterable[str] = ("-comp", "gzip")) -> Path:
    """Write what is in `folder` as the squashfs file `path` and return it; everything in it belongs to root.

    Raises:
        subprocess.CalledProcessError: mksquashfs failed.
    """
    command = ["mksquashfs", str(folder), str(path), "-noappend", "-no-progress", "-quiet", "-all-root", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.chmod(path, 0o644)
    return path.absolute()


def busybox_squashfs(path: Path) -> Path:
    """Make the root of `busybox_root` as the squashfs file `path`; its folder beside it, `path` + ".root", stays.

    Raises:
        FileNotFoundError: there is no busybox.
    """
    return squashfs_of(busybox_root(path.with_name(path.name + ".root")), path)
