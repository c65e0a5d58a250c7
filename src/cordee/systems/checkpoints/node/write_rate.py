"""How fast a checkpoint is written beside a training: as slowly as the time until the next one allows, and slower where steps suffer."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from typing import Optional, Union

AUTO, OFF = "auto", "off"
Pace = Union[str, float]

LEAST_PER_S = float(64 << 20)
_ASKED_SHARE, _LATEST_SHARE = 0.5, 0.8
_SLOWER, _SIGMAS = 1.05, 3.0
_RECENT, _FEWEST = 16, 3
_LATE = 1.25
_LOOK_S = 0.5
_FASTER_BY, _SLOWER_BY = 1.15, 0.7


class WriteRate:
    """The rate of one save.

    Args:
        total: bytes to write.
        interval_s: between two saves; None: not known.
        pace: `auto`, `off`, or bytes per second.
        now: on the clock of the other calls.
    """

    def __init__(self, total: int, interval_s: Optional[float], pace: Pace, now: float) -> None:
        self._total, self._began, self._looked = total, now, now
        self._latest_s = _LATEST_SHARE * interval_s if interval_s else None
        self._adapts = pace == AUTO
        if isinstance(pace, str):
            needed = total / (_ASKED_SHARE * interval_s) if interval_s else 0.0
            self._most = float("inf") if pace == OFF else max(LEAST_PER_S, needed)
        else:
            self._most = float(pace)
        self.per_s = self._most

    def pause_s(self, size: int) -> float:
        """Return how long the writing of `size` bytes should take."""
        return size / self.per_s

    def look(self, written: int, limit_s: float, recent_s: float, now: float) -> None:
        """Follow what steps take, twice a second.

        Args:
            written: bytes until now.
            limit_s: what steps may take before they count as slower; 0: not known.
            recent_s: what the last steps took; 0: not known.
        """
        if not self._adapts or now - self._looked < _LOOK_S:
            return
        self._looked = now
        if 0 < limit_s < recent_s:
            self.per_s = max(self.per_s * _SLOWER_BY, self._least(written, now))
        else:
            self.per_s = max(min(self.per_s * _FASTER_BY, self._most), min(self._least(written, now), self._most))

    def is_late(self, written: int, now: float) -> bool:
        """Return whether what is left must go by a quarter faster than all of it had to, or will not be durable in time."""
        return self._latest_s is not None and self._least(written, now) > _LATE * self._total / self._latest_s

    def _least(self, written: int, now: float) -> float:
        """Return the rate at which the rest is durable in time."""
        if self._latest_s is None:
            return LEAST_PER_S / 8
        left_s = self._latest_s - (now - self._began)
        return (self._total - written) / left_s if left_s > 0 else self._most


class StepTimes:
    """What steps take, with and without a save beside them; told one step after the other."""

    def __init__(self) -> None:
        self._last: Optional[tuple[int, float]] = None
        self._quiet: deque[float] = deque(maxlen=64)
        self._beside: deque[float] = deque(maxlen=_RECENT)

    @property
    def quiet_s(self) -> float:
        """The median of steps without a save, 0 where fewer than three are known."""
        return statistics.median(self._quiet) if len(self._quiet) >= _FEWEST else 0.0

    @property
    def recent_s(self) -> float:
        """The median of the last steps beside a save, 0 where fewer than three are known."""
        return statistics.median(self._beside) if len(self._beside) >= _FEWEST else 0.0

    @property
    def limit_s(self) -> float:
        """What `recent_s` must be above to be slower: 5 % more than without a save, and more than such medians vary by."""
        usual_s = self.quiet_s
        spread_s = 1.48 * statistics.median(abs(seconds - usual_s) for seconds in self._quiet) if usual_s else 0.0
        return max(_SLOWER * usual_s, usual_s + _SIGMAS * 1.25 * spread_s / math.sqrt(max(1, len(self._beside))))

    def saw(self, step: int, *, beside: bool) -> None:
        """Take note that `step` has ended.

        Args:
            beside: whether a save was being written.
        """
        now = time.monotonic()
        if self._last is not None and step > self._last[0]:
            seconds = (now - self._last[1]) / (step - self._last[0])
            if beside:
                self._beside.append(seconds)
            else:
                self._quiet.append(seconds)
        self._last = (step, now)

    def broke_off(self) -> None:
        """Do not count the time until the next step: it was no training."""
        self._last = None
        self._beside.clear()
