"""How often the journal says how far the ranks are: every look at first, rarer the longer the run, so that weeks stay short."""

from __future__ import annotations

from typing import Optional

_SHARE = 1 / 500
_MOST_S = 60.0


class ProgressPace:
    """Decides when progress is written: a five-hundredth of the time so far apart, at most a minute.

    A week makes 12,000 lines instead of 300,000.

    Args:
        least_s: they are never closer together.
    """

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s
        self._began: Optional[float] = None
        self._next = 0.0
        self._written: tuple[Optional[int], Optional[int]] = (None, None)

    def due(self, now: float, step: Optional[int], total: Optional[int], *, last: bool = False) -> bool:
        """Return whether to write this progress, which is then taken to be written.

        Args:
            now: monotonic seconds.
            last: the ranks have ended: what is new is written at once.
        """
        if step is None or (step, total) == self._written or (now < self._next and not last):
            return False
        self._began = now if self._began is None else self._began
        self._next = now + min(_MOST_S, max(self._least_s, (now - self._began) * _SHARE))
        self._written = (step, total)
        return True
