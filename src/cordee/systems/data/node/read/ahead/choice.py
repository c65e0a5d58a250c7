"""How storage is asked early: by the kind of file system that the shards lie on."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

from cordee.machine.memory import MemorySource
from cordee.machine.mounts import mount_of, read_mounts
from cordee.systems.data.node.read.ahead.read_ahead import ranks_of_node

WAYS = ("auto", "advise", "fetch", "none")
# Kinds whose page cache follows POSIX_FADV_WILLNEED, and kinds that are memory. All others are asked by threads: a
# network file system may ignore advice, or answer one request after the other.
_ADVISED = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "erofs"}
_MEMORY = {"tmpfs", "ramfs", "hugetlbfs"}
_ADVISE_SHARE, _MOST_ADVISED = 4, 4 << 30
_FETCH_SHARE, _MOST_FETCHED = 16, 512 << 20
_LEAST = 16 << 20


def way_for(root: str) -> str:
    """Return `advise`, `fetch` or `none` for a folder or an address; the folder itself is not touched."""
    if "://" in root:
        return "fetch"
    mount = mount_of(os.path.realpath(root), read_mounts("/"))
    kind = mount.kind if mount else ""
    return "none" if kind in _MEMORY else "advise" if kind in _ADVISED else "fetch"


def limit_for(way: str, given_bytes: Optional[int]) -> int:
    """Return how many bytes are asked for early at most: as given, else this rank's share of the memory that is free."""
    if given_bytes is not None:
        return max(1, given_bytes)
    share, most = (_ADVISE_SHARE, _MOST_ADVISED) if way == "advise" else (_FETCH_SHARE, _MOST_FETCHED)
    memory = MemorySource().read()
    free_bytes = memory.available_bytes if memory else share * _LEAST
    return max(_LEAST, min(most, free_bytes // share // ranks_of_node()))


def workers_of_loader() -> int:
    """Return how many worker processes of a DataLoader share this rank's memory; 1 outside of one."""
    data: Any = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return worker.num_workers if worker else 1
