"""A disk that refuses or stands still, as sentences: one at once, for the log, and one once it is over, for the journal."""

from __future__ import annotations

from typing import NamedTuple, Optional

_STILL_S = 5.0
_FINDING_S = 10.0


class StallWords(NamedTuple):
    """What to say now: `log` in this process' log, `finding` in the journal; empty: nothing."""

    log: str = ""
    finding: str = ""


class Stalls:
    """What has been said of the run folder's disk.

    Args:
        place: what the disk is called.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._since: Optional[float] = None
        self._words = ""

    def look(self, now: float, refused_since: Optional[float], words: str, busy_s: float) -> StallWords:
        """Return what is to be said.

        Args:
            now: monotonic seconds.
            refused_since: since when the disk refuses, None when it does not.
            words: what it says.
            busy_s: for how long it has not answered a call.
        """
        still = busy_s >= _STILL_S
        if refused_since is None and not still:
            return self._over(now)
        since = now - busy_s if refused_since is None else refused_since
        words = words if refused_since is not None else "it does not answer"
        if self._since is None:
            self._since = since
        if words == self._words:
            return StallWords()
        self._words = words
        return StallWords(log=f"nothing can be written to {self._place}: {words}; waiting, the ranks go on")

    def _over(self, now: float) -> StallWords:
        if self._since is None:
            return StallWords()
        seconds, words = now - self._since, self._words
        self._since, self._words = None, ""
        log = f"{self._place} can be written again, after {seconds:.0f} s"
        if seconds < _FINDING_S:
            return StallWords(log)
        return StallWords(log, f"for {seconds:.0f} s nothing could be written to {self._place}: {words}")
