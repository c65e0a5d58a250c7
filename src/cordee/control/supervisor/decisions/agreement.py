"""Agreeing on one step at which all ranks stop: each rank that calls `cordee.stopping` waits where it is, then the greatest wins. Pure."""

from __future__ import annotations

from typing import Collection, Iterable, Optional

from cordee.wire.messages import StopAnswer

_QUIET_S = 0.5


class StopAgreement:
    """One attempt's agreement, and the time that its ranks have to save and end.

    Args:
        now: when they are asked.
        most_s: that they have. Where some use `cordee.stopping` and do not reach their next call, the others wait for half
            of it.
        signalled: whether they were also given the signal that has them save.

    Attributes:
        asked: whether ranks know that they are to stop: they agreed, or have the signal.
        agreed: the step at which they stop; None before they agree, and when nobody asks `cordee.stopping`.
        due: when to look again.
        over: whether there is nothing more to wait for.
    """

    def __init__(self, now: float, most_s: float, signalled: bool) -> None:
        self._answers: dict[int, Optional[int]] = {}
        self._asking = True
        self._quiet_until = now + _QUIET_S
        self._agree_until, self._save_until = now + most_s / 2, now + most_s
        self._signalled = signalled
        self.asked = self.over = False
        self.agreed: Optional[int] = None
        self.due = min(self._quiet_until, self._agree_until)

    def answered(self, answers: Iterable[StopAnswer]) -> None:
        """Take the answers of one node's ranks."""
        self._answers.update(answers)

    def look(self, now: float, running: Collection[int], ended: bool) -> None:
        """Go on as far as is possible by now.

        Args:
            running: the ranks that run.
            ended: whether all ranks have ended.
        """
        if self._asking and self._must_wait(now, running, ended):
            return
        if self._asking:
            self._asking = False
            self.agreed = max((step for step in self._answers.values() if step is not None), default=None)
            self.asked = self._signalled or self.agreed is not None
        self.due = self._save_until
        self.over = ended or now >= self._save_until or not self.asked

    def _must_wait(self, now: float, running: Collection[int], ended: bool) -> bool:
        all_wait = 0 < len(running) <= len(self._answers) and all(
            self._answers.get(rank) is not None for rank in running
        )
        if all_wait or ended:
            return False
        self.due = self._agree_until if self._answers else min(self._quiet_until, self._agree_until)
        return now < self.due
