"""Counters of the Lustre client, 2.10 to 2.16: `llite.*.stats`, one file for each mount.

A line is `name count samples [unit] least greatest sum squares`; a counter that never moved has no line. `read_bytes` and
`write_bytes` count what programs asked for, also what the client's cache served; operations have no times before 2.13.
(Lustre Operations Manual, chapter "Lustre Parameters"; lustre/llite/lproc_llite.c.)
"""

from __future__ import annotations

import os
from typing import Optional, Sequence

from cordee.machine.files import KernelFile
from cordee.telemetry.node.samplers.storage.mounts import Counters, SampledMount

_METADATA = frozenset(
    b"open close create link unlink symlink mkdir rmdir mknod rename getattr setattr statfs getxattr setxattr listxattr"
    b" removexattr readdir truncate".split()
)
_NEXT = "an administrator can open it to users: mount -o remount,mode=0755 /sys/kernel/debug"
_TIMED = (b"[usec]", b"[usecs]")


class LustreClient:
    """The files of all mounts, wherever this version keeps them.

    Args:
        proc, sys: where /proc and /sys are.
    """

    def __init__(self, proc: str, sys: str) -> None:
        self._folders = (f"{proc}/fs/lustre/llite", f"{sys}/kernel/debug/lustre/llite", f"{sys}/fs/lustre/llite")
        self._files: dict[str, KernelFile] = {}

    def counters(self, mounts: Sequence[SampledMount]) -> tuple[dict[str, Counters], dict[str, str]]:
        """Return the counters of each client, and by the mounts' keys why a file system has none.

        Args:
            mounts: those of Lustre; without any nothing is looked for.
        """
        if not mounts:
            return {}, {}
        found: dict[str, Counters] = {}
        seen: set[str] = set()
        why = f"{self._folders[1]} cannot be read"
        for path in self._paths():
            file = self._files.setdefault(path, KernelFile(path))
            content = file.read()
            client = path.split("/")[-2]  # `scratch-ffff9d3c4a1b2800`
            if content is None:
                why = file.reason or why
                continue
            found[f"lustre:{client}"] = _counters(content)
            seen.add(f"lustre:{client.rpartition('-')[0]}")
        unseen = {mount.key: f"{mount.point}: {why}; {_NEXT}" for mount in mounts if mount.key not in seen}
        return found, unseen

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _paths(self) -> list[str]:
        for folder in self._folders:
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            paths = [f"{folder}/{name}/stats" for name in names if os.path.exists(f"{folder}/{name}/stats")]
            if paths:
                return paths
        return []


def _counters(content: bytes) -> Counters:
    read_bytes = write_bytes = reads = writes = opens = metadata = 0.0
    busy_us: Optional[float] = None
    for line in content.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != b"samples" or not fields[1].isdigit():
            continue
        name, count, total = fields[0], float(fields[1]), _sum(fields)
        if name == b"read_bytes":
            reads, read_bytes = count, total or 0.0
        elif name == b"write_bytes":
            writes, write_bytes = count, total or 0.0
        elif name in (b"read", b"write") and fields[3] in _TIMED and total is not None:
            busy_us = (busy_us or 0.0) + total
        elif name in _METADATA:
            metadata += count
            opens += count if name == b"open" else 0.0
        # A time of any operation shows that this version tells times, also while nothing was read or written.
        if busy_us is None and fields[3] in _TIMED and total is not None:
            busy_us = 0.0
    return read_bytes, write_bytes, reads, writes, opens, metadata, None if busy_us is None else busy_us / 1e6


def _sum(fields: Sequence[bytes]) -> Optional[float]:
    return float(fields[6]) if len(fields) > 6 and fields[6].isdigit() else None
