"""Whether one rank goes on: since when it has made no progress, since when it has done nothing at all, and how often it did before."""

from __future__ import annotations

from collections import deque
from typing import Hashable, Mapping, Optional

from cordee.core.stats import median
from cordee.wire.messages import RankStand

_GAPS = 32
_FEWEST_GAPS = 3


class RankMotion:
    """One rank in one attempt, from look to look; times are seconds of one clock.

    Args:
        rank: the global rank.
        now: when it was seen first.

    Attributes:
        began: whether it has made progress of any kind.
        why: why it cannot go on, as a stand has it.
    """

    def __init__(self, rank: int, now: float) -> None:
        self.rank = rank
        self.began = False
        self.why = ""
        self._progressed_at = self._active_at = now
        self._marks: dict[Hashable, int] = {}
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    def reached(self, marks: Mapping[Hashable, int], now: float) -> None:
        """Take how far it is, by kinds of progress, each 0 at first; a kind that is not told stays as it was."""
        if all(self._marks.get(kind, 0) == mark for kind, mark in marks.items()):
            return
        self._marks.update(marks)
        if self.began:
            self._gaps.append(now - self._progressed_at)
        self.began = True
        self._progressed_at = self._active_at = now

    def was_active(self, now: float) -> None:
        """It has done something, though that may be no progress."""
        self._active_at = now

    def unseen(self, seconds: float) -> None:
        """Nobody could see it for so long, as while the machine was paused: that time does not count."""
        self._progressed_at += seconds
        self._active_at += seconds

    def stand(self, now: float) -> RankStand:
        """Return for how long it has not gone on; one of which no progress is known stands while it does nothing."""
        idle_s = max(0.0, now - self._active_at)
        stands_s = max(0.0, now - self._progressed_at) if self.began else idle_s
        return RankStand(self.rank, round(stands_s, 1), round(idle_s, 1), self._usual_s(), self.began, self.why)

    def _usual_s(self) -> Optional[float]:
        return round(median(self._gaps), 3) if len(self._gaps) >= _FEWEST_GAPS else None
