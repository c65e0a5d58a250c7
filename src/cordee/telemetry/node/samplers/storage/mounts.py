"""The mounts of this process and what the NFS client says of each: /proc/self/mountstats, read at once and never waited for.

Its format is `show_stats` of the kernel: a line `device X mounted on Y with fstype Z` for each mount, and more lines for NFS
(fs/proc_namespace.c, fs/nfs/super.c).
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple, Optional

from cordee.machine.files import KernelFile

# Bytes read, bytes written, reads, writes, opens, operations on names and attributes, seconds spent in reads and writes.
COUNTERS = ("read_bytes", "write_bytes", "reads", "writes", "opens", "metadata", "busy_s")
Counters = tuple[Optional[float], ...]

_NFS = ("nfs", "nfs4")
# File systems of several nodes, other than Lustre and NFS: named, not counted.
_OTHERS = (
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.ceph",
    "wekafs",
    "fuse.daos",
    "fuse.dfuse",
    "pvfs2",
    "panfs",
    "cvmfs2",
    "9p",
    "cifs",
)
_LOOK_EVERY_S = 10.0
_LINE = re.compile(rb"^(\S+) mounted on (\S+) with fstype (\S+)")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class SampledMount(NamedTuple):
    """One mount.

    Attributes:
        source: what is mounted, `10.0.0.1@o2ib:/scratch` for instance.
        point: where.
        kind: of file system: `lustre`, `nfs`, or another's name.
        key: the same for all mounts of one NFS client, or of one Lustre file system, beginning with the kind.
        statistics: the lines that belong to it, of NFS.
    """

    source: str
    point: str
    kind: str
    key: str
    statistics: bytes = b""

    @property
    def shared(self) -> bool:
        """Whether other nodes see it too, as far as its type tells."""
        return self.kind in ("lustre", "nfs") or self.kind in _OTHERS


class MountTable:
    """The mounts, looked at anew at every call where there is NFS, else every ten seconds.

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str) -> None:
        self._stats = KernelFile(f"{proc}/self/mountstats")
        self._info = KernelFile(f"{proc}/self/mountinfo")
        self._clients: dict[str, str] = {}
        self._mounts: list[SampledMount] = []
        self._next_at: Optional[float] = None

    def look(self) -> tuple[list[SampledMount], str]:
        """Return the mounts that are shared or of NFS, and why they cannot be read, empty when they can."""
        now = time.monotonic()
        if self._next_at is not None and now < self._next_at:
            return self._mounts, ""
        content = self._stats.read()
        if content is None:
            self._mounts = []
            return [], self._stats.reason or "no mounts can be read"
        self._mounts = [mount for part in content.split(b"device ") for mount in self._mount(part)]
        self._next_at = None if any(mount.kind == "nfs" for mount in self._mounts) else now + _LOOK_EVERY_S
        return self._mounts, ""

    def close(self) -> None:
        """Close the files."""
        self._stats.close()
        self._info.close()

    def _mount(self, part: bytes) -> list[SampledMount]:
        match = _LINE.match(part)
        if match is None:
            return []
        source, point, kind = (_plain(word) for word in match.groups())
        if kind in _NFS:
            return [SampledMount(source, point, "nfs", f"nfs:{self._client(point)}", part)]
        mount = SampledMount(source, point, kind, f"{kind}:{source.rpartition(':/')[2].partition('/')[0]}")
        return [mount] if mount.shared else []

    def _client(self, point: str) -> str:
        """Return the device number behind a mount point, by which bind mounts of one client are known; else the point."""
        if point not in self._clients:
            self._clients = {}
            for line in (self._info.read() or b"").splitlines():
                fields = line.split(None, 5)
                if len(fields) > 4:
                    self._clients[_plain(fields[4])] = fields[2].decode(errors="replace")
        return self._clients.setdefault(point, point)


def _plain(word: bytes) -> str:
    """Return a word of the kernel's without its escapes, such as `\\040` for a space."""
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), word.decode(errors="replace"))
