"""Whether a run goes on in another segment when its allocation ends before it does. Pure decisions."""

from __future__ import annotations

from typing import NamedTuple, Optional

from cordee.control.supervisor.decisions.outcomes import SegmentOver
from cordee.runs.plan import RunSegment
from cordee.runs.state import RunState

TIME_LIMIT = "time_limit"
BY_SCHEDULER = "scheduler"
_MOST_FRUITLESS = 5
# The scheduler took the nodes away and decides about their return: never the run's fault, however often.
_NOT_COUNTED = ("preempted", "requeued")


class SegmentRefusal(NamedTuple):
    """Why a run ends with its segment: `reason` for the journal, `text` for people."""

    reason: str
    text: str


class Chain:
    """The segments of a run.

    Args:
        policy: the `segment` of the plan's step.
        possible: whether the place can bring the run back at all.
        forget_s: a segment that lasted so long has made progress, whatever it saved; None: only what it saved counts.
    """

    def __init__(self, policy: RunSegment, possible: bool, forget_s: Optional[float] = None) -> None:
        self._most, self._forget_s = policy.max_segments, forget_s
        self._next = policy.next if possible else "forbidden"

    def next(self, reason: str) -> str:
        """Return who has the next segment start: requeue, resubmit, or scheduler (it does so by itself)."""
        return BY_SCHEDULER if reason == "requeued" else self._next

    def refusal(
        self, over: SegmentOver, segment: int, progressed: bool, before: RunState, lasted_s: float = 0.0
    ) -> Optional[SegmentRefusal]:
        """Return why the run must not go on after this segment, or None.

        Args:
            over: why the segment ends.
            segment: its number, from 1.
            progressed: whether it left a new complete checkpoint.
            before: the run's state, with the segments that ended earlier.
            lasted_s: how long it has lasted.
        """
        progressed = progressed or self._is_long(lasted_s)
        timed = 1 + sum(1 for segment in before.chain if segment["reason"] == TIME_LIMIT)
        if over.reason == TIME_LIMIT and (self._most <= 1 or self._next == "forbidden"):
            return SegmentRefusal("time_limit", over.text)
        if self._next == "forbidden" and over.reason != "requeued":
            return SegmentRefusal(over.reason, f"{over.text}, and the profile forbids to queue again")
        if over.reason == TIME_LIMIT and not progressed:
            text = f"segment {segment} ended without a new complete checkpoint: the next would repeat it"
            return SegmentRefusal("no_progress", text)
        if over.reason == TIME_LIMIT and timed >= self._most:
            return SegmentRefusal("time_limit", f"the time that was asked for is over after {timed} segments")
        fruitless = self._fruitless(before, over, progressed)
        if fruitless > _MOST_FRUITLESS:
            text = f"{fruitless} segments in a row ended without a new checkpoint, the last because {over.text}"
            return SegmentRefusal("no_progress", text)
        return None

    def _is_long(self, lasted_s: float) -> bool:
        return self._forget_s is not None and lasted_s >= self._forget_s

    def _fruitless(self, before: RunState, over: SegmentOver, progressed: bool) -> int:
        lasted = {one.number: (one.ended_at or 0.0) - (one.started_at or 0.0) for one in before.segment_states}
        count = 0
        for reason, moved in [(over.reason, progressed)] + [
            (one["reason"], one["progress"] or self._is_long(lasted.get(one["segment"], 0.0)))
            for one in reversed(before.chain)
        ]:
            if moved:
                break
            count += reason not in _NOT_COUNTED
        return count
