"""Whether a run hangs: from what agents tell of the ranks that do not go on. Pure: events carry their time.

A run hangs when every rank that lives stands, for longer than `after`. Whoever goes on, and time in which nobody could be
heard or heard of, speaks against it; ranks that do anything else than steps are given five times as long.
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple, Optional, Union

from cordee.core.stats import median
from cordee.wire.messages import RankStand

_LEAST_S, _STEPS = 60.0, 10.0
# Until every rank has made a step: torch.compile and a first read of data take minutes.
_FIRST_S = 600.0
_BUSY_TIMES, _BUSY_LEAST_S = 5.0, 300.0
_SILENT_S, _SILENT_INTERVALS = 10.0, 3.0
_LATE_S = 3.0


class HangPolicy(NamedTuple):
    """What `[hang]` says; `after_s` None: ten times the time of a step, at least a minute."""

    after_s: Optional[float] = None
    action: str = "report"


class HangBegan(NamedTuple):
    """No rank goes on.

    Attributes:
        since: when the last one did, on the clock of the events.
        after_s: how long they had to stand.
        busy: whether some do something, without a step.
        ranks: all that live; `ended`: those that do not, with their codes.
    """

    since: float
    after_s: float
    busy: bool
    ranks: Mapping[int, RankStand]
    ended: Mapping[int, Optional[int]]


class HangOver(NamedTuple):
    """Ranks go on again, after so many seconds."""

    stood_s: float


class HangDetector:
    """Watches one attempt after the other.

    Args:
        policy: of the run.
        interval_s: how often agents tell of their ranks.
    """

    def __init__(self, policy: HangPolicy, interval_s: float = 1.0) -> None:
        self._policy = policy
        self._silent_s = max(_SILENT_S, _SILENT_INTERVALS * interval_s)
        self._looked_at: Optional[float] = None
        self.begin(0)

    def begin(self, world: int) -> None:
        """An attempt of so many ranks begins; nothing is known of them."""
        self._world = world
        self._living: set[int] = set()
        self.ended: dict[int, Optional[int]] = {}
        self._stands: dict[int, RankStand] = {}
        self._started: dict[int, float] = {}
        self._heard: dict[int, float] = {}
        self._unseen_s = 0.0
        self._hangs_since: Optional[float] = None
        self._moved = False

    def started(self, ranks: Iterable[int], now: float) -> None:
        """Ranks run."""
        for rank in ranks:
            self._living.add(rank)
            self._started[rank] = self._heard[rank] = now

    def has_ended(self, rank: int, code: Optional[int]) -> None:
        """A rank has ended."""
        self._living.discard(rank)
        self._stands.pop(rank, None)
        self.ended[rank] = code

    def told(self, ranks: Iterable[int], stands: Iterable[RankStand], now: float) -> None:
        """A node tells which of its ranks stand at this moment; the others go on."""
        standing = {stand.rank: stand for stand in stands}
        for rank in ranks:
            stand = standing.get(rank)
            # Whoever stands for longer than it has run is a rank of the attempt before.
            if rank not in self._living or (stand and stand.stands_s > now - self._started[rank] + _LATE_S):
                continue
            self._heard[rank] = now
            before = self._stands.get(rank)
            if stand is None:
                self._stands.pop(rank, None)
            else:
                self._stands[rank] = stand
            # A pause of its machine is taken off, so that it does not stand for less than before unless it has gone on.
            if stand is None or (before is not None and stand.began and stand.stands_s < before.stands_s - _LATE_S):
                self._moved = True

    def now(self) -> dict[int, RankStand]:
        """Return how each living rank stands; one that goes on has stood for no time."""
        goes_on = RankStand(0, 0.0, 0.0, None, True, "")
        return {rank: self._stands.get(rank, goes_on._replace(rank=rank)) for rank in sorted(self._living)}

    @property
    def hangs(self) -> bool:
        """Whether a hang was told that is not over."""
        return self._hangs_since is not None

    def look(self, now: float) -> Optional[Union[HangBegan, HangOver]]:
        """Return what has begun or is over, once each."""
        late_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        if late_s > _LATE_S:  # this process stood still: what agents told meanwhile is heard only now
            self._unseen_s += late_s
        if not self._living or len(self._living) + len(self.ended) < self._world:
            return None
        moved, self._moved = self._moved, False
        if len(self._stands) < len(self._living):
            self._unseen_s = 0.0
            return self._goes_on(now)
        if any(now - self._heard[rank] > self._silent_s for rank in self._living):
            return None  # whether they go on cannot be seen
        since = max(self._heard[rank] - stand.stands_s for rank, stand in self._stands.items())
        if self._hangs_since is not None:
            return self._goes_on(now) if moved else None
        after_s = self.after_s()
        busy = min(stand.idle_s for stand in self._stands.values()) < after_s / 2
        wanted = max(_BUSY_TIMES * after_s, _BUSY_LEAST_S) if busy else after_s
        if min(stand.stands_s for stand in self._stands.values()) - self._unseen_s < wanted:
            return None
        self._hangs_since = since
        return HangBegan(since, after_s, busy, dict(self._stands), dict(self.ended))

    def after_s(self) -> float:
        """Return how long ranks must stand."""
        usual = [stand.usual_s for stand in self._stands.values() if stand.usual_s is not None]
        after_s = self._policy.after_s
        if after_s is None:
            after_s = max(_LEAST_S, _STEPS * median(usual)) if usual else _LEAST_S
        begun = all(stand.began for stand in self._stands.values())
        return after_s if begun else max(after_s, _FIRST_S)

    def _goes_on(self, now: float) -> Optional[HangOver]:
        since, self._hangs_since = self._hangs_since, None
        return None if since is None else HangOver(now - since)
