"""One attempt on this node: its ranks, from the order that starts them until the last has ended."""

from __future__ import annotations

import asyncio
import signal
import traceback
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Optional, Union

from cordee.control.agent.enclosure import Enclosure, EnclosureDown
from cordee.control.agent.node_log import CORDEE_STREAM, NodeLog
from cordee.control.agent.output import LastOutput
from cordee.control.agent.ranks.binding import slot_of
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.ranks.commands import RankCommands
from cordee.control.agent.telemetry.reporter import Reporting
from cordee.control.agent.troubles import words_of
from cordee.control.agent.uplink import Uplink
from cordee.control.launch import Launch, make_launch
from cordee.control.lease import LEASE_OVER
from cordee.control.world import AttemptWorld
from cordee.core.secrets import secret_values
from cordee.machine.slots import SlotAllocator
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import TaskExit
from cordee.runs.folder import say
from cordee.runs.plan import RunPlan
from cordee.wire.messages import EndedRank, PoolNews, RanksEnded, RanksStarted, StartedRank

STARTING, RUNNING, ENDED = "starting", "running", "ended"


class NodeAttempt:
    """The ranks of one attempt on this node; what a launch tells of them: see LaunchHost.

    Args:
        world: the attempt's world as this node sees it.
        watched: starts processes.
        channels, enclosure: that the ranks use.
        log: takes what they print.
        slots: that they were given are taken back when they end.
        reporting: what they have logged is sent before it is told that they ended.
        uplink: where their starts and ends are told.

    Attributes:
        status: of each rank: starting, running or ended.
        launch: what starts them; None before `start`.
    """

    def __init__(
        self,
        world: AttemptWorld,
        watched: WatchedTasks,
        channels: RankChannels,
        enclosure: Enclosure,
        log: NodeLog,
        slots: SlotAllocator,
        reporting: Reporting,
        uplink: Uplink,
    ) -> None:
        self.world, self.watched = world, watched
        self._channels, self._enclosure, self._log, self.slots = channels, enclosure, log, slots
        self._reporting, self._uplink = reporting, uplink
        self.status = dict.fromkeys(world.local_ranks, STARTING)
        self.launch: Optional[Launch] = None
        self._tails = {rank: LastOutput() for rank in world.local_ranks}
        self._no_lease: Optional[str] = None
        self._abandoned = False
        self._untold: list[Union[StartedRank, EndedRank]] = []

    @property
    def living(self) -> list[int]:
        """The ranks that have not ended."""
        return [rank for rank, status in self.status.items() if status != ENDED]

    @property
    def group(self) -> str:
        """The name by which the supervisor stops and signals the ranks; empty before they are started."""
        return self.launch.group if self.launch is not None else ""

    def start(
        self, kind: str, plan: RunPlan, commands: RankCommands, paused: bool, kept: Optional[Launch] = None
    ) -> None:
        """Start the ranks; those that cannot be started have ended, and it is told why.

        Args:
            kind: how they are started, `fork` or `srun`.
            plan: the run's.
            commands: what they run.
            paused: whether what they print is to wait.
            kept: of an earlier supervisor's attempt, whose tasks run on in this one.
        """
        try:
            self._channels.renew()
            ranks = commands.of(self.world)
            secrets = secret_values(plan.step.tasks.env, plan.step.tasks.argv)
            self._tails = {rank: LastOutput(secrets) for rank in self.world.local_ranks}
            self._reporting.begin(self.world, ranks)
            if kept is not None:
                kept.go_on(self, self.world)
            self.launch = kept or make_launch(kind, self, plan, self.world)
            self.launch.pause_output(paused)
            self.launch.start(ranks)
        except EnclosureDown as down:
            self._abandon(kept)
            self.do_not_start("exited", down.text)
        except Exception as error:  # whatever it is: the attempt would wait for ranks that never start
            say(f"cordee agent {self.world.node}: the ranks of attempt {self.world.attempt} cannot be started:")
            traceback.print_exc()
            self._abandon(kept)
            self.do_not_start("not_started", words_of(error))

    @staticmethod
    def _abandon(kept: Optional[Launch]) -> None:
        if kept is not None:
            kept.abandon()

    def do_not_start(self, reason: str, text: str) -> None:
        """Tell of all ranks that have not started that they have ended."""
        for rank, status in list(self.status.items()):
            if status == STARTING:
                self.rank_ended(self.world, rank, TaskExit(f"rank-{rank}", None, None, reason, 0.0, text))

    def stop(self, grace_s: float) -> None:
        """End the ranks: SIGTERM now, SIGKILL `grace_s` later."""
        if self.launch is not None:
            self.launch.stop(grace_s)

    def signal(self, number: int) -> None:
        """Send the ranks a signal."""
        if self.launch is not None:
            self.launch.signal(number)

    def end_without_lease(self, why: str) -> None:
        """End the ranks, once, because nobody has allowed them to run on."""
        if self.launch is not None and self._no_lease is None:
            self._no_lease = why
            if self.living:
                say(f"cordee agent {self.world.node}: ends the ranks of attempt {self.world.attempt}: {why}")
                self.stop(0.0)

    def abandon(self) -> None:
        """End the ranks and tell nothing more of them: the attempt belongs to the past."""
        self._abandoned = True
        if self.launch is not None:
            self.launch.abandon()
            for rank in self.status:
                self._forget(rank)

    def keep(self) -> bool:
        """Tell nothing more of the ranks, and return whether tasks run on for the next attempt."""
        self._abandoned = True
        for rank in self.status:
            self._forget(rank)
        return self.launch is not None and self.launch.keep()

    async def settle(self, most_s: float) -> None:
        """Wait until nothing but ended ranks is left of what starts them."""
        if self.launch is not None:
            await self.launch.settle(most_s)

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank that runs."""
        return self.launch.pids() if self.launch is not None else {}

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading what the ranks print."""
        if self.launch is not None:
            self.launch.pause_output(paused)

    # What a launch needs and says: see LaunchHost.

    @property
    def meeting_place(self) -> Path:
        return self._channels.folder

    def rank_started(self, world: AttemptWorld, rank: int, pid: int) -> None:
        if not self._abandoned:
            self.status[rank] = RUNNING
            self._tell_soon(StartedRank(rank, pid))

    def rank_output(self, world: AttemptWorld, rank: int, stream: int, data: bytes) -> None:
        if rank in self._tails:
            self._tails[rank].add(stream, data)
        self._log.write(rank, stream, world.attempt, data)

    def rank_ended(self, world: AttemptWorld, rank: int, ended: TaskExit) -> None:
        ended = self._enclosure.explain(with_lease(ended, self._no_lease), self._tails[rank])
        if ended.text:
            self._log.write(rank, CORDEE_STREAM, world.attempt, ended.text.encode() + b"\n")
        self._reporting.rank_ended()
        self._forget(rank)
        self.status[rank] = ENDED
        words = ended.text or self._tails[rank].message(ended.signal)
        self._tell_soon(EndedRank(rank, ended.code, ended.signal, ended.reason, round(ended.seconds, 3), words))

    def pool_news(self, world: AttemptWorld, body: bytes) -> None:
        if not self._abandoned:
            self._uplink.news(PoolNews(world.attempt), body)

    def _tell_soon(self, news: Union[StartedRank, EndedRank]) -> None:
        """Tell what happened to a rank, together with what happens to others in this turn of the loop."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell)
        self._untold.append(news)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for kind, some in groupby(untold, type):
            message = RanksStarted if kind is StartedRank else RanksEnded
            self._uplink.news(message(self.world.attempt, tuple(some)))  # type: ignore[arg-type]

    def _forget(self, rank: int) -> None:
        """Take back what a rank had of the node."""
        self._channels.close(self.world.attempt, rank)
        self.slots.take_back(slot_of(self.world.attempt, rank))


class Present:
    """The attempt that this node has ranks of, if any: the one thing that others ask for.

    Attributes:
        attempt: of the supervisor that there is.
        kept: of one before it, whose tasks run on until an attempt takes them.
    """

    def __init__(self) -> None:
        self.attempt: Optional[NodeAttempt] = None
        self.kept: Optional[NodeAttempt] = None

    @property
    def number(self) -> int:
        """Of the attempt; 0 where there is none."""
        return self.attempt.world.attempt if self.attempt is not None else 0

    @property
    def living(self) -> list[int]:
        """The ranks that have not ended."""
        attempt = self.attempt or self.kept
        return attempt.living if attempt is not None else []

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank that runs."""
        return self.attempt.pids() if self.attempt is not None else {}

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading what the ranks print."""
        if self.attempt is not None:
            self.attempt.pause_output(paused)

    def kill(self) -> None:
        """Kill the ranks' main processes: what they run in has gone."""
        for attempt in filter(None, (self.attempt, self.kept)):
            attempt.signal(signal.SIGKILL)


def with_lease(ended: TaskExit, no_lease: Optional[str]) -> TaskExit:
    """Return how a rank ended: what was stopped after its lease was over ended for that reason.

    Args:
        ended: as its launch says.
        no_lease: why there is no lease any more; None where there is one.
    """
    if no_lease is None or ended.reason != "stopped":
        return ended
    return replace(ended, reason=LEASE_OVER, text=no_lease)
