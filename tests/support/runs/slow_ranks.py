"""What real ranks did with their time, recorded, and what the detector says of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cordee.systems.explain.node.slow.detector import SlowDetector, SlowOver, SlowRanks
from cordee.wire.messages import KindTimes, RankDigest

RECORDED = Path(__file__).parents[2] / "systems" / "explain" / "node" / "recorded"
PER_NODE = 4
_LEAST_HELD = 0.1


class Trace(NamedTuple):
    """Digests of all ranks of a run.

    Attributes:
        episode: what was done to a rank, see benchmarks/slow_ranks.py.
        world: how many ranks there are.
        rank: which one was slowed; None: nobody was.
        from_s: since when.
        rounds: seconds since the trace began, and what was told then.
    """

    episode: str
    world: int
    rank: int | None
    from_s: float
    rounds: list[tuple[float, list[RankDigest]]]

    @classmethod
    def read(cls, path: Path) -> Trace:
        """Return what was written."""
        with gzip.open(path, "rt") as lines:
            about = json.loads(next(lines))
            rounds = [(at, [_digest(row) for row in rows]) for at, rows in map(json.loads, lines)]
        return cls(about["episode"], about["world"], about["rank"], about["from_s"], rounds)

    def write(self, path: Path) -> None:
        """Write a line that says what it is, and a line for each round: what the detector uses, to hundredths of a second."""
        about = {"episode": self.episode, "world": self.world, "rank": self.rank, "from_s": self.from_s}
        lines = [json.dumps(about)]
        for at, digests in self.rounds:
            rows = [[round(value, 2) for value in _row(one)] for one in digests]
            lines.append(json.dumps([round(at, 1), rows], separators=(",", ":")))
        path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))

    def longer(self) -> float:
        """Return how many times as long steps took while the rank was slowed; the round in which it began is left out."""
        before = self._of_all(lambda at: at <= self.from_s)
        return _rate(before) / _rate(self._of_all(lambda at: at > self.from_s + 10))

    def held(self) -> float:
        """Return for which share of its time the slowed rank was stopped or throttled."""
        own = [one for one in self._of_all(lambda at: at > self.from_s + 10) if one.rank == self.rank]
        return sum(max(one.unseen_s, one.throttled_s) for one in own) / sum(one.window_s for one in own)

    def slowed(self) -> bool:
        """Return whether there is anything to find: a quota that a rank never meets, on a busy machine for example, slows nobody."""
        return self.rank is not None and (not self.episode.startswith(("stop", "quota")) or self.held() >= _LEAST_HELD)

    def _of_all(self, when: Callable[[float], bool]) -> list[RankDigest]:
        return [one for at, digests in self.rounds if when(at) for one in digests]


class Replayed(NamedTuple):
    """What the detector says of a trace.

    Attributes:
        first: how the slowed rank was named first.
        after_s: since it was slowed; endless where it was not named.
        innocent_s: how long others were named, by rank.
        alarms: how often.
    """

    trace: Trace
    first: SlowRanks | None
    after_s: float
    innocent_s: dict[int, float]
    alarms: int

    @property
    def rank_hours(self) -> float:
        """Of those that nobody slowed."""
        innocents = self.trace.world - (self.trace.rank is not None)
        return innocents * self.trace.rounds[-1][0] / 3600


def replay(trace: Trace) -> Replayed:
    """Return what the detector says when it hears a trace, as ranks of nodes with four each."""
    detector = SlowDetector()
    detector.begin({rank: f"n{rank // PER_NODE}" for rank in range(trace.world)}, {}, 0.0)
    first, after_s, alarms, last = None, float("inf"), 0, 0.0
    innocent_s: dict[int, float] = {}
    for at, digests in trace.rounds:
        for one in detector.standing():
            if one.rank != trace.rank:
                innocent_s[one.rank] = innocent_s.get(one.rank, 0.0) + at - last
        detector.told(digests, at)
        for seen in detector.look(at):
            if isinstance(seen, SlowOver):
                continue
            if trace.rank not in seen.ranks or at < trace.from_s:
                alarms += not seen.chronic
            elif first is None:
                first, after_s = seen, at - trace.from_s
        last = at
    return Replayed(trace, first, after_s, innocent_s, alarms)


def _row(one: RankDigest) -> tuple[float, ...]:
    kinds = (one.compute, one.data, one.communication, one.saving)
    seconds = (kind.seconds for kind in kinds)
    return (one.rank, one.window_s, one.steps, *seconds, one.delayed_s, one.unseen_s, one.faults, one.throttled_s)


def _digest(row: list[float]) -> RankDigest:
    rank, window_s, steps, *seconds, delayed_s, unseen_s, faults, throttled_s = row
    kinds = [KindTimes(told, 0, 0.0, 0.0) for told in seconds]
    return RankDigest(int(rank), window_s, int(steps), *kinds, delayed_s, unseen_s, int(faults), throttled_s)


def _rate(digests: list[RankDigest]) -> float:
    return sum(one.steps for one in digests) / sum(one.window_s for one in digests)
