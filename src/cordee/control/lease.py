"""For how long the ranks of a node may run without a word from their supervisor. Pure: no clock and no connection."""

from __future__ import annotations

# Why a rank ended that its agent ended because the lease was over.
LEASE_OVER = "lease"
_DOUBT_SHARE = 2 / 3


class NodeLease:
    """The time until which a node's ranks may run.

    A lease counts from when the agent *said* something that the supervisor has answered, not from when the answer came:
    whatever is held up on its way cannot make it longer, and the supervisor, which heard that word no earlier, knows when
    it is over at the latest. Before the first answer it is over.

    Args:
        lease_s: how long the ranks may run after that.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._of = float("-inf")

    def renew(self, of: float) -> None:
        """The supervisor has answered what was said at the moment `of`; an earlier one changes nothing."""
        self._of = max(self._of, of)

    def over(self, now: float) -> bool:
        """Return whether the ranks must not run any more."""
        return now - self._of > self.lease_s

    def in_doubt(self, now: float) -> bool:
        """Return whether so much of it has passed that another connection should be tried."""
        return now - self._of > _DOUBT_SHARE * self.lease_s
