"""What each rank of a node does with its time: its pulse's sums as digests, one for each rank and window."""

from __future__ import annotations

from collections import deque
from typing import Iterable, NamedTuple, Optional

from cordee.machine.cgroups import groups_of
from cordee.machine.files import read_once
from cordee.systems.explain.node.pulses import RankProcess
from cordee.wire.messages import KindTimes, RankDigest
from cordee.wire.pulse import KindSums, TimeSums

WINDOW_S = 10.0
_LEAST_S = 1.0
# What nobody has taken is kept for so many windows.
_MOST_WINDOWS = 12
# A rank's clock is that of its agent; its sums are shown up to two seconds after they were taken.
_SLACK_S = 5.0
_MOST_A_SECOND = 1000
_MOST_COUNT = 1 << 53
_MOST_GROUPS = 1024
_S, _S2 = 1e-9, 1e-6


class _Taken(NamedTuple):
    """What was read of a process when a window ended."""

    at: float
    times: TimeSums
    steps: int
    throttled_s: float


class RankTimes:
    """The windows of one node; see `RankDigest`.

    Args:
        wanted: whether anybody wants them.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._taken: dict[str, _Taken] = {}
        self._groups: dict[bytes, tuple[str, ...]] = {}
        self._ended: deque[list[RankDigest]] = deque(maxlen=_MOST_WINDOWS)
        self._window_at: Optional[float] = None

    def begin(self) -> None:
        """Another attempt begins, or nobody wants anything: forget what was read."""
        self._taken.clear()
        self._ended.clear()
        self._window_at = None

    def look(self, trainers: Iterable[tuple[int, RankProcess]], now: float) -> bool:
        """Read the sums if a window has ended, and have processes that are new looked at.

        Args:
            trainers: the processes that train, each with its rank.
            now: the time.

        Returns:
            Whether a window has ended.
        """
        processes = {process.path: (rank, process) for rank, process in trainers}
        for path in self._taken.keys() - processes.keys():
            del self._taken[path]
        if not self.wanted:
            for path, (_, process) in processes.items():
                if path in self._taken or process.pulse.times.window:
                    process.want(0)
            self.begin()
            return False
        has_ended = self._window_at is not None and now - self._window_at >= WINDOW_S
        if has_ended or self._window_at is None:
            self._window_at = now
        throttled: dict[str, float] = {}
        found = []
        for path, (rank, process) in processes.items():
            before = self._taken.get(path)
            if before is not None and not has_ended:
                continue
            took = self._taken[path] = self._take(process, throttled, now)
            process.want(took.times.window % _MOST_COUNT + 1)
            digest = _digest(rank, before, took) if before is not None else None
            if digest is not None:
                found.append(digest)
        if found:
            self._ended.append(sorted(found))
        return has_ended

    def taken(self) -> Optional[tuple[RankDigest, ...]]:
        """Return the windows that have ended since this was called before, the older ones first; None where nobody wants any."""
        if not self.wanted:
            return None
        digests = tuple(digest for window in self._ended for digest in window)
        self._ended.clear()
        return digests

    def _take(self, process: RankProcess, throttled: dict[str, float], now: float) -> _Taken:
        stats = self._stats_of(process)
        for path in stats:
            if path not in throttled:
                throttled[path] = _throttled_s(path)
        waited_s = sum(throttled[path] for path in stats)
        return _Taken(now, process.pulse.times, process.pulse.optimizer_steps, waited_s)

    def _stats_of(self, process: RankProcess) -> tuple[str, ...]:
        """Return the files that tell of a process's share of processors: of its control group and of those above."""
        try:
            told = read_once(f"/proc/{process.pid}/cgroup")
        except OSError:  # it has ended
            return ()
        if told not in self._groups:
            if len(self._groups) >= _MOST_GROUPS:
                self._groups.clear()
            groups = groups_of("cpu", pid=str(process.pid))
            self._groups[told] = tuple(f"{group.folder}/cpu.stat" for group in groups)
        return self._groups[told]


def _digest(rank: int, before: _Taken, now: _Taken) -> Optional[RankDigest]:
    """Return what happened between two times; None where a sum went back, or is more than there was time for."""
    old, new = before.times, now.times
    elapsed_s, window_s = now.at - before.at, (new.looked_ns - old.looked_ns) * _S
    if not _LEAST_S <= window_s <= elapsed_s + _SLACK_S:
        return None
    kinds = [_grown(*sums) for sums in zip(old.kinds, new.kinds)]
    times = [(new.delayed_ns - old.delayed_ns) * _S, (new.unseen_ns - old.unseen_ns) * _S]
    counts = [now.steps - before.steps, new.faults - old.faults]
    spent_s = sum(kind.seconds for kind in kinds) + times[1]
    amounts = [*times, *counts, *(amount for kind in kinds for amount in kind)]
    most_looks = _MOST_A_SECOND * window_s
    stays_s = elapsed_s + max(kind.longest_s for kind in kinds)
    if (
        min(amounts) < 0
        or max(counts) >= _MOST_COUNT
        or max(spent_s, times[0]) > window_s + _SLACK_S
        or max(kind.looks for kind in kinds) > most_looks
        or max(kind.squares for kind in kinds) > stays_s**2 * most_looks
    ):
        return None
    throttled_s = min(window_s, max(0.0, now.throttled_s - before.throttled_s))
    delayed_s, unseen_s, throttled_s = (round(seconds, 3) for seconds in (*times, throttled_s))
    compute, data, communication, saving = kinds
    told = (rank, round(window_s, 3), counts[0], compute, data, communication, saving)
    return RankDigest(*told, delayed_s, unseen_s, counts[1], throttled_s)


def _grown(old: KindSums, new: KindSums) -> KindTimes:
    return KindTimes(
        round((new.ns - old.ns) * _S, 3),
        new.looks - old.looks,
        round(new.longest_ns * _S, 3),
        round((new.squares_ms2 - old.squares_ms2) * _S2, 4),
    )


def _throttled_s(path: str) -> float:
    """Return for how long a control group had no more processor time, as its `cpu.stat` of version 1 or 2 has it."""
    try:
        lines = read_once(path).decode().splitlines()
        for line in lines:
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time"):
                return int(value) * (1e-6 if name == "throttled_usec" else 1e-9)
    except (OSError, ValueError):
        pass
    return 0.0
