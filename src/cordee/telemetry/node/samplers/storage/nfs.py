"""Counters of the NFS client, versions 3 to 4.2, from /proc/self/mountstats.

`bytes:` tells what programs and what servers moved, `events:` what programs asked, and one line for each operation how often
it was sent and how long it took, in milliseconds (nfsstat, mountstats and nfs-iostat of nfs-utils read the same; the kernel's
fs/nfs/super.c, fs/nfs/iostat.h and net/sunrpc/stats.c write it).
"""

from __future__ import annotations

import re
from typing import Optional, Sequence

from cordee.telemetry.node.samplers.storage.mounts import Counters, SampledMount

# Six numbers of `bytes:` and five of `events:`; of an operation its name, how often, and milliseconds from queue to answer.
_BYTES = re.compile(rb"^\s*bytes:\s+\d+ \d+ \d+ \d+ (\d+) (\d+)", re.MULTILINE)
_EVENTS = re.compile(rb"^\s*events:\s+\d+ \d+ \d+ \d+ (\d+)", re.MULTILINE)
_OPERATION = re.compile(rb"^\s+([A-Z]\w+): (\d+) \d+ \d+ \d+ \d+ \d+ \d+ (\d+)", re.MULTILINE)
# Operations on names and attributes; what keeps a session or a lock alive is not among them.
_METADATA = frozenset(
    b"ACCESS CLOSE CREATE FSINFO FSSTAT GETACL GETATTR GETXATTR LINK LISTXATTRS LOOKUP LOOKUPP LOOKUP_ROOT MKDIR MKNOD OPEN"
    b" OPEN_DOWNGRADE OPEN_NOATTR PATHCONF READDIR READDIRPLUS READLINK REMOVE REMOVEXATTR RENAME RMDIR SETACL SETATTR"
    b" SETXATTR STATFS SYMLINK".split()
)


def nfs_counters(mounts: Sequence[SampledMount]) -> dict[str, Counters]:
    """Return the counters of each NFS client, by key; what a mount's lines do not hold is None."""
    return {mount.key: _counters(mount.statistics) for mount in mounts if mount.kind == "nfs"}


def _counters(statistics: bytes) -> Counters:
    moved, asked = _BYTES.search(statistics), _EVENTS.search(statistics)
    reads = writes = metadata = busy_ms = None
    for name, count, took_ms in _OPERATION.findall(statistics):
        if name in _METADATA:
            metadata = (metadata or 0.0) + float(count)
        elif name == b"READ":
            reads, busy_ms = float(count), (busy_ms or 0.0) + float(took_ms)
        elif name == b"WRITE":
            writes, busy_ms = float(count), (busy_ms or 0.0) + float(took_ms)
    return (
        _number(moved, 1),
        _number(moved, 2),
        reads,
        writes,
        _number(asked, 1),
        metadata,
        None if busy_ms is None else busy_ms / 1000,
    )


def _number(found: Optional[re.Match[bytes]], group: int) -> Optional[float]:
    return None if found is None else float(found.group(group))
