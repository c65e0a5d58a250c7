"""What systems do beside the lead of a run: one port that any number of them fill."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, Deque, Mapping, NamedTuple, Optional, Union

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.decisions.vocabulary import HangFound, NodeSuspected, TimeIsNear
from cordee.control.supervisor.troubles import SupervisorTroubles
from cordee.core.parts import load
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Inline
from cordee.runs.plan import RunPlan
from cordee.wire.messages import Gathered, PoolNews, RanksEnded, RanksStarted, StopAnswers, Telemetry

# In `node_parts` of the plan, before the name of a system.
PORT = "watcher/"
_FAILED = "watching the ranks failed"
_FINISH_S = 10.0
# Events that watchers are told of before anything else has its turn.
_EVENTS_AT_ONCE = 250


class WatchedRun(NamedTuple):
    """What a watcher has of its supervisor.

    Attributes:
        plan, folder: the run's.
        nodes: by name.
        journal: where findings are written.
        order: gives an agent an order: `order(node, message)`; False where the agent is gone.
        attempt: returns the newest attempt that has begun, None before the first.
        happened: told what is to become of the run.
        suspect: told which nodes others are to take the place of.
        lane: makes a lane of a name, for what waits for a disk.
        left_s: returns in how many seconds the segment is to end; None: it has no limit.
    """

    plan: RunPlan
    folder: RunFolder
    nodes: Mapping[str, Node]
    journal: JournalWriter
    order: Callable[..., bool]
    attempt: Callable[[], Optional[Attempt]]
    happened: Callable[[Union[HangFound, TimeIsNear]], None]
    suspect: Callable[[NodeSuspected], None]
    lane: Callable[[str], Inline]
    left_s: Callable[[], Optional[float]] = lambda: None


class RunWatcher:
    """A system's part beside the lead. Called in the supervisor's loop, where nothing waits; made anew by each supervisor."""

    def __init__(self, run: WatchedRun) -> None:
        self.run = run

    def event(self, event: Mapping[str, Any]) -> None:
        """An event was written to the journal, by whomever in this supervisor; told at the next second."""

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        """An agent has told what it measures, once in the sampling's interval; records of samples are in the body."""

    def rank_news(self, node: Node, message: Union[RanksStarted, RanksEnded, StopAnswers]) -> None:
        """An agent has said something of its ranks."""

    def gathered(self, node: Node, message: Gathered, body: bytes) -> None:
        """An agent tells a part of what it was asked to collect."""

    def pool_news(self, node: Node, message: PoolNews, body: bytes) -> None:
        """A pool of tasks tells what became of some; what it tells is of the system that fills the port of its launch."""

    def requested(self, request: dict[str, Any]) -> None:
        """Somebody has left a request in the run's folder: see `cordee.job.terminal.requests`."""

    def second(self, now: float) -> None:
        """A second is over; `now` is monotonic."""

    def words(self) -> str:
        """Return what the run has done where its ranks have all ended well, in words; empty: no more than that."""
        return ""

    def close(self) -> None:
        """The run, or its segment, is over."""

    async def finish(self) -> None:
        """Do what of that takes longer than a moment; given up after a few seconds."""


class Watchers:
    """All of them, in the order of their systems' names; what fails in one is said and stops nobody else.

    Raises:
        CordeeError: the plan names one that is not there.
    """

    def __init__(self, run: WatchedRun, troubles: SupervisorTroubles) -> None:
        parts = (part for port, part in sorted(run.plan.node_parts.items()) if port.startswith(PORT))
        self._all: list[RunWatcher] = [load(part)(run) for part in parts]
        self._troubles = troubles
        self._events: Deque[dict[str, Any]] = deque()
        self._to_pass_on = 0
        run.journal.heard = self._events.append

    def telemetry(self, node: Node, message: Telemetry, body: bytes) -> None:
        """An agent has told what it measures."""
        for watcher in self._all:
            try:
                watcher.telemetry(node, message, body)
            except Exception as error:
                self._troubles.say(_FAILED, error)

    def rank_news(self, node: Node, message: Union[RanksStarted, RanksEnded, StopAnswers]) -> None:
        """An agent has said something of its ranks."""
        for watcher in self._all:
            try:
                watcher.rank_news(node, message)
            except Exception as error:
                self._troubles.say(_FAILED, error)

    def asked_for(self, node: Node, message: Union[Gathered, PoolNews], body: bytes) -> None:
        """An agent tells what one of them has asked it for: a part of what it collects, or what became of tasks of its pool."""
        if isinstance(message, Gathered):
            self._each(lambda watcher: watcher.gathered(node, message, body))
        else:
            self._each(lambda watcher: watcher.pool_news(node, message, body))

    def requested(self, request: dict[str, Any]) -> None:
        """Somebody has left a request."""
        self._each(lambda watcher: watcher.requested(request))

    def second(self, now: float) -> None:
        """A second is over."""
        passing, self._to_pass_on = bool(self._to_pass_on), len(self._events)
        if self._to_pass_on and not passing:
            asyncio.get_running_loop().call_soon(self._pass_on_some)
        self._each(lambda watcher: watcher.second(now))

    def worded(self, over: Union[Ended, SegmentOver]) -> Union[Ended, SegmentOver]:
        """Return how the run is over, and where it has ended well in the words of those who know what it did."""
        if not isinstance(over, Ended) or over.state != "finished":
            return over
        said: list[str] = []
        self._each(lambda watcher: said.append(watcher.words()))
        return Ended(over.state, over.exit_code, over.reason, "; ".join(filter(None, said)) or over.text)

    async def close(self) -> None:
        """The run, or its segment, is over: wait for what watchers do then, and not for long."""
        self._pass_on(len(self._events))
        self._each(lambda watcher: watcher.close())
        self._pass_on(len(self._events))
        finishing = [asyncio.ensure_future(watcher.finish()) for watcher in self._all]
        done, late = await asyncio.wait(finishing, timeout=_FINISH_S) if finishing else (set(), set())
        for task in late:
            task.cancel()
        for task in done:
            error = task.exception()
            if error is not None:
                self._troubles.say(_FAILED, error)

    def _pass_on_some(self) -> None:
        """Tell a part of what had been written when the second was over; the others follow soon."""
        there = min(self._to_pass_on, len(self._events))
        part = min(there, _EVENTS_AT_ONCE)
        self._to_pass_on = there - part
        if self._to_pass_on:
            asyncio.get_running_loop().call_soon(self._pass_on_some)
        self._pass_on(part)

    def _pass_on(self, count: int) -> None:
        """Tell what was written first."""
        for event in [self._events.popleft() for _ in range(count)]:
            for watcher in self._all:
                try:
                    watcher.event(event)
                except Exception as error:
                    self._troubles.say(_FAILED, error)

    def _each(self, tell: Callable[[RunWatcher], None]) -> None:
        for watcher in self._all:
            try:
                tell(watcher)
            except Exception as error:
                self._troubles.say(_FAILED, error)
