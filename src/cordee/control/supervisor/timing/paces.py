"""How often a supervisor looks at its run's folder: often right after news, and seldom where nothing happens for long."""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """The pause between two looks: `least_s` right after news, then a tenth of the time without, at most `most_s`.

    Looks that cost much are further apart: they may ask `per_s` operations of the file system a second in the long run.
    """

    least_s: float
    most_s: float
    per_s: float = float("inf")


# On a file system that others use too; a client that cancels calls besides.
SHARED = {"requests": Pace(0.2, 3.0), "owner": Pace(1.0, 10.0), "checkpoints": Pace(2.0, 30.0, 0.5)}
LOCAL = {"requests": Pace(0.2, 0.4), "owner": Pace(1.0, 2.0), "checkpoints": Pace(2.0, 10.0, 40.0)}


class Paces:
    """Says what is to be looked at now.

    Args:
        paces: by what is looked at.
        now: monotonic seconds.
    """

    def __init__(self, paces: dict[str, Pace], now: float) -> None:
        self._paces = paces
        self._next = dict.fromkeys(paces, now)
        self._news = dict.fromkeys(paces, now)

    def due(self, what: str, now: float) -> bool:
        """Return whether to look, and count that as a look."""
        if now < self._next[what]:
            return False
        pace = self._paces[what]
        self._next[what] = now + min(pace.most_s, max(pace.least_s, 0.1 * (now - self._news[what])))
        return True

    def cost(self, what: str, operations: int, now: float) -> None:
        """Say what the last look has asked of the file system."""
        self._next[what] = max(self._next[what], now + operations / self._paces[what].per_s)

    def news(self, what: str, now: float) -> None:
        """Say that there was something new, or that somebody says so: the next looks come soon."""
        self._news[what] = self._next[what] = now
