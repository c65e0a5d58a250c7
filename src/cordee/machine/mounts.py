"""The file systems of a node and which of them a path lies on, without touching the path."""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple, Optional

from cordee.machine import sysfs

SHARED_KINDS = frozenset(
    [
        "lustre",
        "nfs",
        "nfs4",
        "gpfs",
        "beegfs",
        "ceph",
        "fuse.ceph",
        "wekafs",
        "panfs",
        "pvfs2",
        "orangefs",
        "glusterfs",
        "fuse.glusterfs",
        "cifs",
        "smb3",
        "afs",
        "9p",
        "virtiofs",
        "daos",
        "fuse.daos",
        "cvmfs",
        "fuse.sshfs",
        "fuse.juicefs",
        "vastnfs",
        "quobyte",
    ]
)
MEMORY_KINDS = frozenset(["tmpfs", "ramfs"])

LOCAL_KINDS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay", "bcachefs")


class Mount(NamedTuple):
    """One mounted file system: where, what kind (`lustre`, `nfs4`, `tmpfs`, ...), from where, and whether it can be written."""

    point: str
    kind: str
    source: str
    writable: bool


def read_mounts(root: str) -> list[Mount]:
    """Return what is mounted, in the order in which it was; none when the kernel does not say.

    Source: the kernel's Documentation/filesystems/proc.rst, 3.5 (/proc/<pid>/mountinfo).
    """
    found = []
    for line in (sysfs.whole(os.path.join(root, "proc/self/mountinfo")) or "").splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        writable = "ro" not in fields[5].split(",") and "ro" not in rest[2].split(",")
        found.append(Mount(_plain(fields[4]), rest[0], _plain(rest[1]), writable))
    return found


def mount_of(path: str, mounts: list[Mount]) -> Optional[Mount]:
    """Return the file system that a path lies on by its name alone: a path that hangs is not touched."""
    path = os.path.normpath(path)
    best = None
    for mount in mounts:
        inside = mount.point == "/" or path == mount.point or path.startswith(mount.point + "/")
        # Of two on one point the later hides the earlier.
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_shared(path: str) -> bool:
    """Return whether others than this machine may use the file system that a path lies on; unknown ones are taken for shared."""
    mount = mount_of(os.path.abspath(path), read_mounts("/"))
    return mount is None or mount.kind not in LOCAL_KINDS


def _plain(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def kind_of_file_system(name: str) -> Literal["memory", "node", "shared"]:
    """Return what kind of place a file system of this name is."""
    if name in MEMORY_KINDS:
        return "memory"
    return "shared" if name in SHARED_KINDS else "node"
