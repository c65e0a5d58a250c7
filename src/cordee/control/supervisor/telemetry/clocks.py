"""How far the nodes' clocks are from the supervisor's, from what their messages say of the time."""

from __future__ import annotations

_MOST_OFF_S = 5.0
_LEAST_MESSAGES = 10


class NodeClocks:
    """The most that any message of a node showed it to be ahead: a delay makes that less, never more."""

    def __init__(self) -> None:
        self._off_s: dict[str, float] = {}
        self._heard: dict[str, int] = {}

    def hear(self, node: str, told: float, now: float) -> None:
        """Take in the UTC epoch seconds that a node told, and what it is here."""
        off_s = told - now
        self._heard[node] = self._heard.get(node, 0) + 1
        self._off_s[node] = max(off_s, self._off_s.get(node, off_s))

    @property
    def wrong(self) -> dict[str, float]:
        """Return, by node, how many seconds its clock is ahead, where that is more than a delay explains."""
        return {
            node: off_s
            for node, off_s in self._off_s.items()
            if abs(off_s) > _MOST_OFF_S and self._heard[node] >= _LEAST_MESSAGES
        }
