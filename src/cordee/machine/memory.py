"""How much memory a node has for us: the machine's, or less where a cgroup (v1 or v2) sets a limit."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from cordee.machine.cgroups import groups_of
from cordee.machine.files import KernelFile, read_once

_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file"),
    2: ("memory.max", "memory.current", b"inactive_file"),
}


class MemoryReading(NamedTuple):
    """Bytes in all and available without swapping; `source` says whether the machine or a cgroup sets them."""

    total_bytes: int
    available_bytes: int
    source: str


class _Level(NamedTuple):
    limit: str
    usage: str
    inactive_key: bytes


class MemorySource:
    """Reads the memory again and again; the cgroup's place is looked up once.

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self.reason: Optional[str] = None
        self._meminfo = KernelFile(f"{proc}/meminfo")
        self._levels = _levels(proc)

    def read(self) -> Optional[MemoryReading]:
        """Return the memory, or None with `reason` set."""
        content = self._meminfo.read(2048)
        values = {} if content is None else _pairs(content, b":")
        total, available = values.get(b"MemTotal"), values.get(b"MemAvailable")
        if total is None or available is None:
            self.reason = self._meminfo.reason or f"{self._meminfo.path} lacks MemTotal or MemAvailable"
            return None
        reading = MemoryReading(total * 1024, available * 1024, "machine")
        for level in self._levels:
            reading = _narrowed(reading, level)
        return reading


def _narrowed(reading: MemoryReading, level: _Level) -> MemoryReading:
    try:
        limit_text = read_once(level.limit).strip()
        if limit_text == b"max":
            return reading
        limit, usage = int(limit_text), int(read_once(level.usage))
        if limit >= reading.total_bytes:
            return reading
        statistics = _pairs(read_once(os.path.join(os.path.dirname(level.limit), "memory.stat")), b" ")
    except (OSError, ValueError):
        return reading
    available = limit - usage + statistics.get(level.inactive_key, 0)
    return MemoryReading(limit, max(0, min(reading.available_bytes, available)), "cgroup")


def _levels(proc: str) -> list[_Level]:
    """Return the memory limits that hold for this process: those of its cgroup and of all above it."""
    found = []
    for group in groups_of("memory", proc):
        limit, usage, inactive = _NAMES[group.version]
        if os.path.exists(os.path.join(group.folder, limit)):
            found.append(_Level(os.path.join(group.folder, limit), os.path.join(group.folder, usage), inactive))
    return found


def _pairs(content: bytes, separator: bytes) -> dict[bytes, int]:
    found = {}
    for line in content.splitlines():
        key, _, rest = line.partition(separator)
        number = rest.split()[:1]
        if number and number[0].isdigit():
            found[key] = int(number[0])
    return found
