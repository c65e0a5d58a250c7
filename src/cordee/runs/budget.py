"""What those who follow a run may ask of its file system: so many metadata operations a second, and what they share of them."""

from __future__ import annotations

from pathlib import Path

from cordee.runs.waiting_clients import JOIN_COST, WaitingClients

# All who wait for a run together: beside its supervisor at most two a second in all.
TOGETHER_PER_S = 1.0
# Twice a journal: see `cordee.runs.lookout`.
LEAST_BURST = 12.0


class Budget:
    """Metadata operations that may be asked of a file system: so many a second in the long run, some more at first.

    Args:
        per_s: operations a second.
        burst: operations that may be saved up, and are there at first.
        now: monotonic seconds.

    Attributes:
        together: how many share what may be asked, this one among them.
    """

    together = 1

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s, self._burst, self._left, self._at = per_s, burst, burst, now

    def buy(self, cost: float, now: float) -> bool:
        """Take the operations; False where they have to wait. What costs more than can be saved up needs all savings."""
        self._earn(now)
        if self._left < min(cost, self._burst):
            return False
        self._left -= cost
        return True

    def take(self, cost: float, now: float) -> None:
        """Take operations that cannot wait, on credit."""
        self._earn(now)
        self._left -= cost

    def borrow(self, cost: float, now: float) -> bool:
        """Take operations that should not wait, on credit; False where more than half of what can be saved up would be owed."""
        self._earn(now)
        if self._left <= min(0.0, cost - 0.5 * self._burst):
            return False
        self._left -= cost
        return True

    def share(self, now: float) -> None:
        """Leave to the others what is theirs; to be called before each look."""

    def _earn(self, now: float) -> None:
        self._left = min(self._burst, self._left + self._per_s * max(0.0, now - self._at))
        self._at = now


class SharedBudget(Budget):
    """The part of one who waits for a run in what all who wait for it may ask: who is alone has `per_s` and `burst`.

    Args:
        root: the run's folder.
        per_s, burst, now: see `Budget`.
    """

    def __init__(self, root: Path, per_s: float, burst: float, now: float) -> None:
        super().__init__(per_s, burst, now)
        self._alone = per_s, burst
        self._clients = WaitingClients(root, now)
        self.take(JOIN_COST, now)

    def share(self, now: float) -> None:
        together = self._clients.count(now)
        if together != self.together:
            self.together = together
            self._earn(now)
            per_s, burst = self._alone
            self._per_s = min(per_s, TOGETHER_PER_S / together)
            self._burst = max(LEAST_BURST, burst / together)
            self._left = min(self._left, self._burst)
