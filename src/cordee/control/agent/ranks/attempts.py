"""The attempts that a node has ranks of, one after the other: started, stopped, and ended with their lease, as ordered."""

from __future__ import annotations

import asyncio
import signal
from typing import Callable, Collection, Optional, Sequence

from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.orders import Handlers
from cordee.control.agent.ranks.attempt import NodeAttempt, Present
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.ranks.commands import RankCommands
from cordee.control.agent.uplink import Tell, Uplink
from cordee.control.lease import LEASE_OVER
from cordee.control.world import AttemptWorld
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.plan import RunPlan
from cordee.wire.messages import (
    Clear,
    Cleared,
    PoolTasks,
    Ranks,
    Signal,
    Stop,
    StopAnswer,
    StopAnswers,
    StopAt,
    StopRequest,
)

_STOP_POLL_S = 0.02
_CLEAR_POLL_S = 0.1
_SETTLE_S = 2.0
_LATE_S = 1.0


class Attempts:
    """What becomes of a node's ranks.

    Args:
        plan: the run's.
        machine: knows which ranks live.
        watched: starts processes.
        channels: ask ranks where to stop.
        uplink: where news goes, and the lease.
        present: holds the attempt that there is.
        commands: what ranks run.
        attempt: makes the attempt of a world.

    Attributes:
        handlers: what takes the orders that are meant for it, by their type.
    """

    def __init__(
        self,
        plan: RunPlan,
        machine: NodeTasks,
        watched: WatchedTasks,
        channels: RankChannels,
        uplink: Uplink,
        present: Present,
        commands: RankCommands,
        attempt: Callable[[AttemptWorld], NodeAttempt],
    ) -> None:
        self._plan, self._machine, self._watched, self._channels = plan, machine, watched, channels
        self._uplink, self._present, self._commands, self._attempt = uplink, present, commands, attempt
        self._paused = False
        self._frozen: Sequence[int] = ()
        self._frozen_at: Optional[float] = None
        self._stop_poll: Optional[asyncio.Task[None]] = None
        self._clearing: Optional[asyncio.Task[None]] = None
        self.handlers: Handlers = {
            Ranks: self._start,
            Stop: self._stop,
            Signal: self._signal,
            PoolTasks: self._tasks,
            StopRequest: self._ask_to_stop,
            StopAt: self._stop_at,
            Clear: self._clear,
        }

    def forget(self) -> None:
        """End the ranks that there are, and what was kept, and tell nothing more of them."""
        self._forget_present()
        kept, self._present.kept = self._present.kept, None
        if kept is not None:
            kept.abandon()

    def _forget_present(self) -> None:
        attempt, self._present.attempt = self._present.attempt, None
        if attempt is not None:
            attempt.abandon()

    def hand_over(self) -> None:
        """A newer supervisor leads the run: tasks of a pool run on for its first attempt, as long as their lease lasts; ranks end."""
        attempt, self._present.attempt = self._present.attempt, None
        if attempt is not None and attempt.keep():
            self._present.kept = attempt

    def stop_all(self) -> None:
        """End the ranks that there are."""
        if self._present.attempt is not None:
            self._present.attempt.stop(0.0)

    def look_at_lease(self, late_s: float) -> None:
        """End the ranks that there are, and what was kept, if their lease is over.

        Where this process was so late that the lease could not be renewed, as in a job that was suspended, they stand still
        first, for as long as another lease: the supervisor may have stood still too, or have given them up.
        """
        now = asyncio.get_running_loop().time()
        if not self._uplink.lease_is_over():
            self._thaw()
            return
        if self._frozen_at is not None:
            self._frozen_at += late_s
        elif late_s > _LATE_S and not self._uplink.lease_is_over(late_s):
            held = [attempt for attempt in (self._present.attempt, self._present.kept) if attempt is not None]
            mains = {pid for attempt in held for pid in attempt.pids().values()}
            self._frozen, self._frozen_at = self._machine.freeze(self._watched.tasks.owner, mains), now
        if self._frozen_at is not None and now - self._frozen_at < self._uplink.lease.lease_s:
            return
        self._frozen, self._frozen_at = (), None
        if self._present.attempt is not None:
            self._present.attempt.end_without_lease(self._uplink.no_lease)
        if self._present.kept is not None:
            self.forget()

    def _thaw(self) -> None:
        if self._frozen_at is not None:
            self._machine.thaw(self._frozen)
            self._frozen, self._frozen_at = (), None

    async def end(self) -> None:
        """End everything, as the agent ends."""
        if self._present.attempt is not None:
            await self._present.attempt.settle(_SETTLE_S)
        self.forget()

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading what ranks print, also those that are still to come."""
        self._paused = paused
        self._present.pause_output(paused)

    def _start(self, order: Ranks, body: bytes) -> None:
        over, kept = self._uplink.lease_is_over(), self._present.kept
        if not over:
            self._present.kept = None
        self.forget()
        attempt = self._present.attempt = self._attempt(AttemptWorld.from_order(order, body))
        if over:
            attempt.do_not_start(LEASE_OVER, self._uplink.no_lease)
        else:
            before = kept.launch if kept is not None else None
            attempt.start(order.launch, self._plan, self._commands, self._paused, before)

    def _of_group(self, group: str) -> Optional[NodeAttempt]:
        """Return the attempt that an order means, None where that is not the one that there is."""
        attempt = self._present.attempt
        return attempt if attempt is not None and attempt.group == group else None

    def _stop(self, order: Stop, body: bytes) -> None:
        attempt = self._of_group(order.group)
        if attempt is not None:
            attempt.stop(order.grace_s)

    def _signal(self, order: Signal, body: bytes) -> None:
        attempt = self._of_group(order.group)
        if attempt is not None:
            attempt.signal(getattr(signal, "SIG" + order.signal))

    def _tasks(self, order: PoolTasks, body: bytes) -> None:
        attempt = self._present.attempt
        if attempt is not None and attempt.launch is not None and order.attempt == attempt.world.attempt:
            attempt.launch.take_tasks(order, body)

    def _ask_to_stop(self, order: StopRequest, body: bytes) -> None:
        self._channels.request_stop(order.attempt)
        self._end_stop_poll()
        self._stop_poll = asyncio.ensure_future(self._report_stop_answers(order.attempt))

    def _stop_at(self, order: StopAt, body: bytes) -> None:
        self._channels.stop_at(order.attempt, order.step)
        self._end_stop_poll()

    def _end_stop_poll(self) -> None:
        if self._stop_poll is not None:
            self._stop_poll.cancel()
            self._stop_poll = None

    async def _report_stop_answers(self, number: int) -> None:
        last: Optional[dict[int, Optional[int]]] = None
        while self._present.number == number:
            answers = self._channels.stop_answers(number)
            if answers != last:
                last = answers
                self._uplink.news(StopAnswers(number, tuple(StopAnswer(*answer) for answer in answers.items())))
            await asyncio.sleep(_STOP_POLL_S)

    def _clear(self, order: Clear, body: bytes) -> None:
        """End what earlier attempts left here, but for what was kept, and say when nothing else of it runs any more."""
        self._forget_present()
        self._clearing = asyncio.ensure_future(self._tell_when_clear(self._uplink.teller()))

    async def _tell_when_clear(self, tell: Tell) -> None:
        while self._machine.ranks_of(self._watched.tasks.owner, self._kept_tasks()):
            await asyncio.sleep(_CLEAR_POLL_S)
        tell(Cleared(self._present.kept is not None))

    def _kept_tasks(self) -> Collection[str]:
        launch = self._present.kept.launch if self._present.kept is not None else None
        return launch.kept if launch is not None else ()
