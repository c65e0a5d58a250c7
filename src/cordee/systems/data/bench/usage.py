"""What a process and all below it have used so far: processor time, and requests and bytes of reading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class TreeUsage(NamedTuple):
    """Totals of a tree of processes; `None` where the kernel does not say.

    Attributes:
        cpu_s: user and system seconds, with those of children that have ended.
        reads, read_bytes: calls of the read family and what they gave (/proc/PID/io: syscr, rchar), pipes included.
        device_bytes: what came from a device (read_bytes): not from the page cache.
        processes: how many there are now.
    """

    cpu_s: float
    reads: int | None
    read_bytes: int | None
    device_bytes: int | None
    processes: int

    def since(self, before: TreeUsage) -> TreeUsage:
        """Return what was used after `before`."""

        def less(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None else max(0, now - then)

        return TreeUsage(
            self.cpu_s - before.cpu_s,
            less(self.reads, before.reads),
            less(self.read_bytes, before.read_bytes),
            less(self.device_bytes, before.device_bytes),
            self.processes,
        )


def usage_of(pid: int, proc: Path = Path("/proc")) -> TreeUsage:
    """Return the totals of a process and its descendants."""
    ticks, reads, read_bytes, device_bytes, seen = 0, 0, 0, 0, 0
    told = True
    for member in _tree(pid, proc):
        try:
            fields = (proc / str(member) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended: its parent has its time as soon as it is waited for
        seen += 1
        ticks += sum(int(field) for field in fields[11:15])
        try:
            lines = (proc / str(member) / "io").read_text().splitlines()
            values = {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}
            reads += values["syscr"]
            read_bytes += values["rchar"]
            device_bytes += values["read_bytes"]
        except (OSError, KeyError, ValueError):
            told = False
    cpu_s = ticks / _TICKS_PER_S
    if not told:
        return TreeUsage(cpu_s, None, None, None, seen)
    return TreeUsage(cpu_s, reads, read_bytes, device_bytes, seen)


def _tree(pid: int, proc: Path) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        member = waiting.pop()
        found.append(member)
        for task in sorted((proc / str(member) / "task").glob("*")):
            try:
                waiting.extend(int(child) for child in (task / "children").read_text().split())
            except OSError:
                continue
    return found
