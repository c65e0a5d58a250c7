"""How long the processes of each rank stood in the queue for a CPU."""

from __future__ import annotations

import os
from typing import Mapping, Optional

from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.process_files import ProcessFiles
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.tree import TreeLook

_NAME = "cpu_queued_ratio"
_NOT_TOLD = "the kernel does not tell how long a thread waited for a CPU (no schedstat in /proc)"


class CpuQueue(RankPart):
    """Time per second in which a main thread of each rank's tree was ready to run and had no CPU: of the one that waited most.

    Main threads only: one file for each process, and it is they that hold a step up. Source: the second number of
    /proc/pid/schedstat, nanoseconds (the kernel's Documentation/scheduler/sched-stats.rst).

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._told = os.path.exists(f"{proc}/self/schedstat")
        self._files = ProcessFiles(proc)
        self._waited_s: dict[int, float] = {}
        if not self._told:
            self.missing = {_NAME: _NOT_TOLD}

    def metrics(self) -> list[dict[str, str]]:
        """Return the one metric, where the kernel tells it."""
        return [described(_NAME, "proc/pid/schedstat")] if self._told else []

    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[TreeLook]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the ratio of each rank."""
        if not self._told:
            return {rank: [] for rank, look in looks.items() if look is not None}
        self.missing = {}
        alive = {pid for look in looks.values() if look is not None for pid in look.members}
        self._files.only(alive)
        for pid in set(self._waited_s) - alive:
            del self._waited_s[pid]
        return {rank: [self._longest(look, elapsed_s)] for rank, look in looks.items() if look is not None}

    def close(self) -> None:
        """Close the processes' files."""
        self._files.only(())

    def _longest(self, look: TreeLook, elapsed_s: float) -> float:
        waits = [wait for pid in look.members for wait in (self._wait_s(pid),) if wait is not None]
        if not waits or elapsed_s <= 0:
            self.missing[_NAME] = FIRST
            return NAN
        return min(1.0, max(waits) / elapsed_s)

    def _wait_s(self, pid: int) -> Optional[float]:
        """Return the seconds that a process has waited since the look before; None where there was none."""
        try:
            told = self._files.read(pid, "schedstat", keep=True).split()
        except OSError:
            return None
        if len(told) < 2 or not told[1].isdigit():
            return None
        waited_s = int(told[1]) / 1e9
        before_s = self._waited_s.get(pid)
        self._waited_s[pid] = waited_s
        return None if before_s is None else max(0.0, waited_s - before_s)
