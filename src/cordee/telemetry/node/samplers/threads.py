"""The busiest thread of each rank: one that is always busy holds back all others."""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence

from cordee.machine.files import KernelFile, read_once
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.tree import TreeLook

_NAME = "thread_busiest_ratio"
_KEPT = 8
_FULL_RATIO = 0.97
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class BusiestThread(RankPart):
    """CPU time per second of the busiest thread of each rank's tree, from the threads' schedstat or stat.

    Few threads are read in most samples: what a process used altogether bounds what any thread of it used, and the
    threads that were busy before are read first. Where those leave too much open, all threads of the process are read; the
    value of one that was not read in the sample before is its mean since it was.

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._schedstat = os.path.exists(f"{proc}/self/schedstat")
        self._known: dict[int, _Threads] = {}
        self._now_s = 0.0

    def metrics(self) -> list[dict[str, str]]:
        """Return the one metric."""
        return [described(_NAME, f"proc/pid/task/tid/{'schedstat' if self._schedstat else 'stat'}")]

    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[TreeLook]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the ratio of each rank."""
        self.missing = {}
        self._now_s += elapsed_s
        alive = {pid for look in looks.values() if look is not None for pid in look.members}
        for pid in set(self._known) - alive:
            self._known.pop(pid).close()
        return {rank: [self._busiest(look, elapsed_s)] for rank, look in looks.items() if look is not None}

    def close(self) -> None:
        """Close the threads' files."""
        for threads in self._known.values():
            threads.close()
        self._known.clear()

    def _busiest(self, look: TreeLook, elapsed_s: float) -> float:
        if look.ticks is None or elapsed_s <= 0:
            self.missing[_NAME] = FIRST
            for pid, busy in look.members.items():
                if busy.threads > 1:
                    self._of(pid).busiest_ratio(1.0, 0.0, self._now_s)
            return NAN
        used = sorted(
            ((busy.ticks or 0) * _TICK_S / elapsed_s, busy.threads, pid) for pid, busy in look.members.items()
        )
        best, unsure = 0.0, _TICK_S / elapsed_s
        for ratio, count, pid in reversed(used):
            if ratio <= best + unsure or best >= _FULL_RATIO:
                break
            found = ratio
            if count > 1:
                found = self._of(pid).busiest_ratio(ratio, max(best, 3 * unsure), self._now_s)
            if found != found:
                self.missing[_NAME] = FIRST
                return NAN
            best = max(best, found)
        return min(1.0, best)

    def _of(self, pid: int) -> _Threads:
        threads = self._known.get(pid)
        if threads is None:
            threads = self._known[pid] = _Threads(f"{self._proc}/{pid}/task", self._schedstat)
        return threads


class _Threads:
    """The threads of one process.

    Args:
        folder: its task folder.
        schedstat: read nanoseconds from the threads' schedstat; else ticks from their stat.
    """

    def __init__(self, folder: str, schedstat: bool) -> None:
        self._folder = folder
        self._schedstat = schedstat
        self._followed: dict[str, KernelFile] = {}
        self._seen: dict[str, tuple[float, float]] = {}
        self._scanned_at: Optional[float] = None

    def busiest_ratio(self, used_ratio: float, enough_ratio: float, now_s: float) -> float:
        """Return the CPU time per second of the busiest thread; NaN when they are seen for the first time.

        Args:
            used_ratio: of all threads together.
            enough_ratio: a thread below this does not matter.
        """
        ratios = {tid: self._ratio(tid, file.read(512), now_s) for tid, file in self._followed.items()}
        for tid in [tid for tid, ratio in ratios.items() if ratio is None]:
            self._followed.pop(tid).close()
        known = {tid: ratio for tid, ratio in ratios.items() if ratio is not None}
        best = max(known.values(), default=0.0)
        rest = used_ratio - sum(known.values())
        if rest <= max(best, enough_ratio) or best >= _FULL_RATIO:
            return best
        first = self._scanned_at is None
        known.update(self._scan(now_s))
        self._follow(sorted(known, key=lambda tid: known[tid], reverse=True)[:_KEPT])
        return NAN if first else max(known.values(), default=0.0)

    def close(self) -> None:
        """Close the files."""
        self._follow([])

    def _scan(self, now_s: float) -> dict[str, float]:
        """Read all threads that are not followed; those that a first look finds have no ratio yet."""
        found: dict[str, float] = {}
        try:
            names = os.listdir(self._folder)
        except OSError:
            return found
        for tid in names:
            if tid in self._followed:
                continue
            try:
                ratio = self._ratio(tid, read_once(self._path(tid)), now_s)
            except OSError:
                continue
            if ratio is not None:
                found[tid] = ratio
        self._seen = {tid: self._seen[tid] for tid in names if tid in self._seen}
        self._scanned_at = now_s
        return found

    def _ratio(self, tid: str, content: Optional[bytes], now_s: float) -> Optional[float]:
        """Return a thread's CPU time per second since it was read last; one that is new began after the last look at all."""
        used_s = _used_s(content or b"", self._schedstat)
        if used_s is None:
            return None
        before_s, at_s = self._seen.get(tid, (0.0, self._scanned_at))
        self._seen[tid] = (used_s, now_s)
        if at_s is None:
            return 0.0
        return (used_s - before_s) / (now_s - at_s) if now_s > at_s else None

    def _follow(self, chosen: Sequence[str]) -> None:
        for tid in [tid for tid in self._followed if tid not in chosen]:
            self._followed.pop(tid).close()
        for tid in chosen:
            self._followed.setdefault(tid, KernelFile(self._path(tid)))

    def _path(self, tid: str) -> str:
        return f"{self._folder}/{tid}/{'schedstat' if self._schedstat else 'stat'}"


def _used_s(content: bytes, schedstat: bool) -> Optional[float]:
    """Return the seconds that a thread has used, from the content of its schedstat or stat (proc(5))."""
    if schedstat:
        first = content.split(None, 1)[:1]
        return int(first[0]) / 1e9 if first and first[0].isdigit() else None
    fields = content[content.rfind(b")") + 2 :].split(None, 14)
    return (int(fields[11]) + int(fields[12])) * _TICK_S if len(fields) > 13 else None
