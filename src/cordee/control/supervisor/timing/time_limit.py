"""The time limit of a segment: its run is told before it is reached, early enough to save and to stop."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional

from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.decisions.vocabulary import TimeIsNear
from cordee.control.supervisor.troubles import SupervisorTroubles
from cordee.core.clock import monotonic
from cordee.runs.plan import RunSegment


class SegmentLimit:
    """Says, `grace` before its time is over, that a segment has little left; says nothing where it has no limit.

    Args:
        segment: of the plan.
        place: knows how old the segment's allocation is.
        near: called once.
        troubles: says what fails.
    """

    def __init__(
        self,
        segment: RunSegment,
        place: Allocation,
        near: Callable[[TimeIsNear], object],
        troubles: SupervisorTroubles,
    ) -> None:
        self._segment, self._place, self._near, self._troubles = segment, place, near, troubles
        self._watching: Optional[asyncio.Future[None]] = None
        self._until: Optional[float] = None

    def watch(self) -> None:
        """Begin."""
        if self._segment.limit_s is not None:
            self._until = monotonic() + self._segment.limit_s - self._segment.grace_s - self._place.age_s()
        self._watching = asyncio.ensure_future(self._watch())
        self._watching.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Say nothing any more."""
        if self._watching is not None:
            self._watching.cancel()

    def left_s(self) -> Optional[float]:
        """Return in how many seconds it is said, negative afterwards; None: the segment has no limit, or is not watched yet."""
        return None if self._until is None else self._until - monotonic()

    async def _watch(self) -> None:
        left_s = self.left_s()
        if left_s is not None:
            await asyncio.sleep(max(0.0, left_s))
            self._near(TimeIsNear(monotonic(), f"the time limit of {self._segment.limit_s:.0f} s is near"))

    def _ended(self, watching: asyncio.Future[None]) -> None:
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            self._troubles.say("the time limit is not watched any more", error)
