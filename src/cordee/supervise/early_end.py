"""What ends a run, or its segment, before its ranks do: a request, a signal, the clock, the scheduler."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, Optional, Union

from cordee.clock import monotonic
from cordee.runs.journal import JournalWriter
from cordee.supervise.agreement import StopAgreement
from cordee.supervise.attempt import Attempt, Outcome
from cordee.supervise.ends import Ended, SegmentOver
from cordee.supervise.place import Place

_POLL_S = 0.2
_CANCEL_STOP_S = 10.0
_RESERVE_S = 15.0
_RESERVE_SHARE = 0.2
_FATE_S = 20.0
_FATE_POLL_S = 0.3
_TERMINATION_S = 2.0


class EarlyEnd:
    """Asks the ranks to stop in time, and remembers why.

    Args:
        step: the plan's step.
        journal: where the wish and the agreed step are written.
        place: knows why the supervisor was told to end.
        attempt: returns the newest attempt.
        changed: set when there is a reason to end.

    Attributes:
        over: why the run or its segment ends; the first reason stands.
        agreement: on the step at which all ranks stop, while they are asked.
    """

    def __init__(
        self,
        step: dict[str, Any],
        journal: JournalWriter,
        place: Place,
        attempt: Callable[[], Optional[Attempt]],
        changed: asyncio.Event,
    ) -> None:
        self._step, self._journal, self._place = step, journal, place
        self._attempt, self._changed = attempt, changed
        self.over: Optional[Union[Ended, SegmentOver]] = None
        self.agreement: Optional[StopAgreement] = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fate: Optional[asyncio.Task[Any]] = None

    def raise_if_over(self) -> None:
        """Raise why it is over, if it is."""
        if self.over is not None:
            raise self.over

    def cancel(self, by: str, *, now: bool = False) -> None:
        """End the run as cancelled; ranks that can save are asked to, unless it must be `now`."""
        reason = f"cancelled by {by}"
        wait = 0.0 if now else min(_CANCEL_STOP_S, self._step["checkpoint"]["grace_s"])
        self._end(Ended("cancelled", 1, "cancelled", reason), Outcome("cancelled", reason=reason), wait)

    def leave(self, over: SegmentOver, most_s: float) -> None:
        """End the segment; ranks that can save have `most_s` to do so."""
        self._end(over, Outcome("segment", reason=over.text), most_s)

    def time_is_near(self) -> None:
        """Slurm's signal, `grace` before the job's time is over."""
        self.leave(SegmentOver("time_limit"), self._to_save_s())

    async def watch_clock(self) -> None:
        """End the segment `grace` before its time is over; returns at once when it has no limit."""
        segment = self._step["segment"]
        if segment["limit_s"] is None:
            return
        await asyncio.sleep(max(0.0, segment["limit_s"] - segment["grace_s"] - self._place.age_s()))
        text = f"the time limit of {segment['limit_s']:.0f} s is near"
        self.leave(SegmentOver("time_limit", text), self._to_save_s())

    def _to_save_s(self) -> float:
        """Return how long ranks may save: what is left of `grace` is for ending them and for queueing again."""
        grace = float(self._step["segment"]["grace_s"])
        return grace - min(_RESERVE_S, _RESERVE_SHARE * grace)

    def terminated(self) -> None:
        """A signal told the supervisor to end: find out why, and end accordingly."""
        if self._fate is None:
            self._fate = self._start(self._learn_fate())

    async def termination(self) -> None:
        """Give a signal to the supervisor the time to come after the same signal to its ranks, and be understood."""
        deadline = monotonic() + _TERMINATION_S
        while self._fate is None and monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        if self._fate is not None:
            await self._fate

    async def _learn_fate(self) -> None:
        loop, deadline = asyncio.get_running_loop(), monotonic() + _FATE_S
        while True:
            fate = await loop.run_in_executor(None, self._place.fate)
            if fate not in ("running", "unknown") or monotonic() > deadline:
                break
            await asyncio.sleep(_FATE_POLL_S)
        if fate == "cancelled":
            self.cancel("the scheduler" if self._place.chains else "a signal to the supervisor")
        elif fate == "preempted":
            self.leave(SegmentOver(fate), self._step["checkpoint"]["grace_s"])
        elif fate in ("running", "unknown"):
            self.cancel("a signal to the supervisor")
        elif fate != "ended":
            self.leave(SegmentOver(fate), 0.0)

    def _end(self, over: Union[Ended, SegmentOver], outcome: Outcome, most_s: float) -> None:
        if self.over is not None:
            return
        self.over = over
        self._changed.set()
        attempt = self._attempt()
        if attempt is not None and not attempt.all_ended():
            self._start(self._stop_in_time(attempt, outcome, most_s))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stop_in_time(self, attempt: Attempt, outcome: Outcome, most_s: float) -> None:
        """Give ranks that can save a chance to, within `most_s`, then end the attempt."""
        self._journal.append("stop_requested", reason=outcome.reason)
        if most_s > 0:
            await self._ask_to_stop(attempt, outcome, most_s)
        attempt.interrupt(outcome)

    async def _ask_to_stop(self, attempt: Attempt, outcome: Outcome, most_s: float) -> None:
        deadline = monotonic() + most_s
        name = self._step["checkpoint"].get("signal")
        if name:
            for node in attempt.nodes:
                node.send({"t": "signal", "group": attempt.group, "signal": name})
        self.agreement = StopAgreement(attempt)
        agreed = await self.agreement.agree(most_s / 2)
        if agreed is not None:
            self._journal.append("stop_agreed", step=agreed)
        if agreed is None and not name:
            return
        attempt.told_to_stop = outcome
        while monotonic() < deadline and not attempt.all_ended():
            await asyncio.sleep(_POLL_S)
