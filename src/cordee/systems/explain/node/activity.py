"""Whether the processes of a rank do anything that its steps do not show: read, write, compile, load data."""

from __future__ import annotations

import os
from typing import Collection, NamedTuple, Optional

from cordee.machine.files import read_once
from cordee.machine.processes.table import read_process
from cordee.machine.processes.tree import Process, tree_of

# What threads that wait read and write, and the processor time that they take to look around, is less.
_FLOOR_BYTES_PER_S = 64 << 10
_FLOOR_SHARE = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class _Used(NamedTuple):
    start_ticks: int
    bytes: int
    ticks: int


class RankActivity:
    """The process tree of one rank, from look to look.

    Args:
        root: pid of its main process.

    Attributes:
        tree: its processes, by pid.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._before: dict[int, _Used] = {}
        self._looked_at = 0.0
        self._shares: dict[int, float] = {}
        self.tree: dict[int, Process] = {}

    def look(self, apart: Collection[int], now: float) -> bool:
        """Return whether it did something since the look before; the first look always says so.

        Args:
            apart: pids of processes whose processor time says nothing, as they may wait in a loop.
            now: the time.
        """
        self.tree = tree_of(self._root)
        before, self._before = self._before, {pid: _used(process) for pid, process in self.tree.items()}
        elapsed_s, self._looked_at = now - self._looked_at, now
        if not before:
            return True
        grown = {pid: _grown(before.get(pid), used) for pid, used in self._before.items()}
        self._shares = {pid: round(one.ticks * _TICK_S / max(elapsed_s, _TICK_S), 2) for pid, one in grown.items()}
        moved, busy = (
            sum(one.bytes for one in grown.values()),
            sum(one.ticks for pid, one in grown.items() if pid not in apart),
        )
        return moved > _FLOOR_BYTES_PER_S * elapsed_s or busy * _TICK_S > _FLOOR_SHARE * elapsed_s

    def share(self, pid: int) -> Optional[float]:
        """Return the processor seconds that a process used in each second between the last two looks, None before the second."""
        return self._shares.get(pid)

    def forget(self) -> None:
        """The rank went on: the next look is the first."""
        self._before, self._shares = {}, {}


def _grown(before: Optional[_Used], now: _Used) -> _Used:
    """Return what a process has used since the look before."""
    if before is None or before.start_ticks != now.start_ticks:
        return now
    return _Used(now.start_ticks, max(0, now.bytes - before.bytes), max(0, now.ticks - before.ticks))


def _used(process: Process) -> _Used:
    usage = read_process("/proc", process.pid)
    try:
        told = read_once(f"/proc/{process.pid}/io")
    except OSError:  # it has ended, or the kernel does not let us see it
        told = b""
    counts = [
        line.split(b": ")[1] for line in told.splitlines() if line.startswith((b"rchar", b"wchar", b"read_", b"write_"))
    ]
    return _Used(process.start_ticks, sum(map(int, counts)), usage.ticks if usage is not None else 0)
