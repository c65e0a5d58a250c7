"""What ends a run, or its segment, before its ranks do: a request, a signal, the clock, the scheduler. Pure."""

from __future__ import annotations

from typing import Optional, Union

from cordee.control.supervisor.decisions.outcomes import AttemptOutcome, Ended, SegmentOver
from cordee.control.supervisor.decisions.vocabulary import AskToStop
from cordee.runs.plan import RunStep

_CANCEL_STOP_S = 10.0
_RESERVE_S = 15.0
_RESERVE_SHARE = 0.2
# Fates by which a scheduler has nothing in mind with an allocation, or does not say.
UNDECIDED = ("running", "unknown")


class EarlyEnd:
    """Why the run ends early; the first reason stands. Each method returns what the ranks are to be asked then, if anything.

    Args:
        step: the plan's step.
        chains: whether the run can come back after its allocation.

    Attributes:
        over: why the run or its segment ends.
    """

    def __init__(self, step: RunStep, chains: bool) -> None:
        self._checkpoint, self._grace_s, self._chains = step.checkpoint, step.segment.grace_s, chains
        self.over: Optional[Union[Ended, SegmentOver]] = None

    def cancel(self, now: float, by: str, at_once: bool = False) -> Optional[AskToStop]:
        """End the run as cancelled; ranks that can save are asked to, unless it must be `at_once`."""
        reason = f"cancelled by {by}"
        most_s = 0.0 if at_once else min(_CANCEL_STOP_S, self._checkpoint.grace_s)
        return self._end(
            now, Ended("cancelled", 1, "cancelled", reason), AttemptOutcome("cancelled", reason=reason), most_s
        )

    def time_is_near(self, now: float, text: str = "") -> Optional[AskToStop]:
        """End the segment: what is left of its `grace` when ranks have saved is for ending them and for queueing again."""
        most_s = self._grace_s - min(_RESERVE_S, _RESERVE_SHARE * self._grace_s)
        return self._leave(now, SegmentOver("time_limit", text), most_s)

    def fated(self, now: float, fate: str) -> Optional[AskToStop]:
        """End as the scheduler has it in mind: a signal without its word is somebody's who wants the run to end."""
        if fate == "cancelled":
            return self.cancel(now, "the scheduler" if self._chains else "a signal to the supervisor")
        if fate == "preempted":
            return self._leave(now, SegmentOver(fate), self._checkpoint.grace_s)
        if fate in UNDECIDED:
            return self.cancel(now, "a signal to the supervisor")
        return None if fate == "ended" else self._leave(now, SegmentOver(fate), 0.0)

    def _leave(self, now: float, over: SegmentOver, most_s: float) -> Optional[AskToStop]:
        """End the segment; ranks that can save have `most_s` to do so."""
        return self._end(now, over, AttemptOutcome("segment", reason=over.text), most_s)

    def _end(
        self, now: float, over: Union[Ended, SegmentOver], outcome: AttemptOutcome, most_s: float
    ) -> Optional[AskToStop]:
        if self.over is not None:
            return None
        self.over = over
        return AskToStop(now, outcome, most_s, self._checkpoint.signal or "")
