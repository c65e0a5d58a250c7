"""Whether the processes of a rank do anything that its steps do not show: read, write, compile, load data."""

from __future__ import annotations

import os
from typing import Collection, Mapping, NamedTuple

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
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._before: dict[int, _Used] = {}
        self._looked_at = 0.0
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
        moved, busy = _grown(before, self._before, apart)
        return moved > _FLOOR_BYTES_PER_S * elapsed_s or busy * _TICK_S > _FLOOR_SHARE * elapsed_s

    def forget(self) -> None:
        """The rank went on: the next look is the first."""
        self._before = {}


def _grown(before: Mapping[int, _Used], now: Mapping[int, _Used], apart: Collection[int]) -> tuple[int, int]:
    moved = busy = 0
    for pid, used in now.items():
        past = before.get(pid)
        if past is None or past.start_ticks != used.start_ticks:
            past = _Used(0, 0, 0)
        moved += max(0, used.bytes - past.bytes)
        busy += 0 if pid in apart else max(0, used.ticks - past.ticks)
    return moved, busy


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
