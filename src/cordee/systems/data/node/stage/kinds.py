"""What kind of place a file system is: memory, the node's own disk, or shared."""

from __future__ import annotations

from typing import Literal

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


def kind_of_file_system(name: str) -> Literal["memory", "node", "shared"]:
    """Return what kind of place a file system of this name is."""
    if name in MEMORY_KINDS:
        return "memory"
    return "shared" if name in SHARED_KINDS else "node"
