"""Counters of the NFS client, versions 3 to 4.2, from /proc/self/mountstats.

`bytes:` tells what programs and what servers moved, `events:` what programs asked, and one line for each operation how often
it was sent and how long it took, in milliseconds (nfsstat, mountstats and nfs-iostat of nfs-utils read the same; the kernel's
fs/nfs/super.c, fs/nfs/iostat.h and net/sunrpc/stats.c write it).
"""

from __future__ import annotations

from typing import Optional, Sequence

from cordee.node.samplers.storage_mounts import Counters, Mount

# Places in `bytes:` and `events:`, and in a line of an operation.
_SERVER_READ, _SERVER_WRITE, _OPENS = 4, 5, 4
_COUNT, _EXECUTE_MS = 0, 7
# Operations on names and attributes; what keeps a session or a lock alive is not among them.
_METADATA = frozenset(
    b"ACCESS CLOSE CREATE FSINFO FSSTAT GETACL GETATTR GETXATTR LINK LISTXATTRS LOOKUP LOOKUPP LOOKUP_ROOT MKDIR MKNOD OPEN"
    b" OPEN_DOWNGRADE OPEN_NOATTR PATHCONF READDIR READDIRPLUS READLINK REMOVE REMOVEXATTR RENAME RMDIR SETACL SETATTR"
    b" SETXATTR STATFS SYMLINK".split()
)


def nfs_counters(mounts: Sequence[Mount]) -> dict[str, Counters]:
    """Return the counters of each NFS client, by key; what a mount's lines do not hold is None."""
    return {mount.key: _counters(mount.statistics) for mount in mounts if mount.kind == "nfs"}


def _counters(statistics: bytes) -> Counters:
    lines: dict[bytes, list[bytes]] = {}
    for line in statistics.splitlines()[1:]:
        name, found, numbers = line.partition(b":")
        if found:
            lines[name.strip()] = numbers.split()
    read, write = lines.get(b"READ", []), lines.get(b"WRITE", [])
    busy = [_at(read, _EXECUTE_MS), _at(write, _EXECUTE_MS)]
    names = [_at(numbers, _COUNT) for name, numbers in lines.items() if name in _METADATA]
    known = [number for number in names if number is not None]
    return (
        _at(lines.get(b"bytes", []), _SERVER_READ),
        _at(lines.get(b"bytes", []), _SERVER_WRITE),
        _at(read, _COUNT),
        _at(write, _COUNT),
        _at(lines.get(b"events", []), _OPENS),
        sum(known) if known else None,
        None if busy[0] is None or busy[1] is None else (busy[0] + busy[1]) / 1000,
    )


def _at(numbers: Sequence[bytes], place: int) -> Optional[float]:
    return float(numbers[place]) if len(numbers) > place and numbers[place].isdigit() else None
