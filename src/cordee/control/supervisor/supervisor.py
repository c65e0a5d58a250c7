"""The supervisor: one process that leads a run inside its allocation, from the first connection to the last line.

It owns the run for one epoch. What it decides is in the journal before it acts, so that the next supervisor, if this one
is killed, knows what was promised. The decisions are made elsewhere (`nodes`, `run`); here is what carries them out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Optional, TextIO, Union, cast

from cordee import wire
from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor import preparer, segments, stager
from cordee.control.supervisor.agents import Agents
from cordee.control.supervisor.allocation import ORPHANED, Allocation, allocation_of
from cordee.control.supervisor.asides import Asides, GoneAgents
from cordee.control.supervisor.decisions.chain import Chain
from cordee.control.supervisor.decisions.nodes import Node, Nodes
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.decisions.run import RunLead
from cordee.control.supervisor.decisions.vocabulary import (
    AgentLost,
    Broke,
    CancelWanted,
    Changed,
    CloseAttempt,
    Complain,
    ContainerGone,
    FindFenced,
    FindGone,
    FoundGone,
    GaveUp,
    IsOver,
    Lead,
    LookedAt,
    NewAttempt,
    NodeSuspected,
    NotCome,
    Ordered,
    Orphaned,
    Over,
    PortsFound,
    Prepare,
    Preparing,
    RankNews,
    ReplaceAgent,
    RunEvent,
    Take,
    Terminated,
    TimeIsNear,
    VetAgain,
)
from cordee.control.supervisor.disks.lanes import Lanes
from cordee.control.supervisor.disks.startup import EXIT_REFUSED, Starting
from cordee.control.supervisor.machines import Machines
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.parts import Parts
from cordee.control.supervisor.run_end import Ending, LedSegment
from cordee.control.supervisor.shells import ShellRelay
from cordee.control.supervisor.start_checkpoint import Beginnings
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.control.supervisor.timing.passes import run_in_slices
from cordee.control.supervisor.timing.ticker import Ticker
from cordee.control.supervisor.timing.time_limit import SegmentLimit
from cordee.control.supervisor.troubles import SupervisorTroubles
from cordee.control.supervisor.watchers import WatchedRun, Watchers
from cordee.core.clock import monotonic
from cordee.core.errors import EXIT_INTERNAL, CordeeError, OwnershipError
from cordee.core.parts import load
from cordee.runs import checkpoint
from cordee.runs.checkpoint import CheckpointFinder
from cordee.runs.disk import DISK, Disk, may_pass
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import JournalWriter
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lane import Aside, Lane
from cordee.runs.plan import part_in, read_plan
from cordee.runs.state import RunState
from cordee.wire import messages
from cordee.wire.messages import FROM_CLIENT, decode

# The batch script of a Slurm job knows these two; any other code but 0 makes it start the next supervisor.
EXIT_ENDED = 100
EXIT_NOT_OURS = 101
_SAY_S = 5.0


class Supervisor:
    """Leads one run for one epoch.

    Args:
        folder: the run's folder, with a frozen plan.
        place: what this allocation can do beyond the agents (replace one, look after its keeper).
        disk: where journal, telemetry and claims are written.
        lanes: where that is done.
    """

    def __init__(
        self, folder: RunFolder, place: Optional[Allocation] = None, disk: Disk = DISK, lanes: Optional[Lanes] = None
    ) -> None:
        self.folder = folder
        self.plan = read_plan(folder)
        step, timeouts = self.plan.step, self.plan.timeouts
        self.place = place or allocation_of(folder, self.plan)
        _refuse_a_second_job(folder, self.place)
        self.ownership = Ownership(folder.control / "epochs", self.place.owner_alive, self.place.identity, disk)
        self.epoch = self.ownership.claim()
        self.place.beat()
        self.lanes = lanes or Lanes()
        self.journal = JournalWriter(folder.journal, f"supervisor-{self.epoch}", self.epoch, disk=disk)
        self.checkpoints: CheckpointFinder = self._part(checkpoint.PART)(
            step.checkpoint, folder.id, folder.control, timeouts.orphan_s, timeouts.kill_s
        )
        before = segments.state_at_start(self.journal, folder, self.place, self.checkpoints)
        _refuse_what_is_over(before, folder, self.place)
        # All that a supervisor wrote after its last line may still be on its way to the disk, its end too; a person's `resume` undoes ends.
        end = None if before.ended else self.ownership.decided(max(before.epoch, before.resumed_epoch + 1))
        self._decided = Ended(**end) if end else None
        left_over = segments.left_over(before, self.place)
        number = before.segments + (before.state == "queued" and left_over is None)
        self.segment = LedSegment(number, before.segment_checkpoint, before, left_over)
        self.journal.lane = self.lanes.writing
        self.troubles = SupervisorTroubles(self.journal)
        decided = Nodes(self.place.node_names(), self.epoch, number, timeouts.lost_s)
        decided.suspected_before({node.node: node.suspected for node in before.nodes})
        self.nodes = decided.by_name
        logs = f"{folder.control}/agent*.log"
        earlier = (before.attempt, self.place.chains, logs, before.doubts)
        self.run = RunLead(step, timeouts, self.nodes, self.epoch, *earlier)
        self.machines = Machines(self._broke)
        self.agents = Agents(
            self.machines, decided, self.journal, self.place, self._number, self._changed, self._orders_are_out
        )
        self.intake = TelemetrySink(
            folder.telemetry, self.epoch, self.journal, self.lanes.writing, disk, self.agents.tell
        )
        self.shells = ShellRelay(self.nodes, self.agents.order)
        allocation = preparer.PreparedAllocation(
            self.plan,
            str(folder.root),
            self.nodes,
            self.journal,
            self.place.allocation.get("job"),
            self.agents.order,
            self.agents.happened,
            self._prepared,
        )
        self.vetting: preparer.NodePreparer = self._part(preparer.PART)(allocation)
        self.stager = stager.Stagers(allocation)
        about_run = (self.plan, folder, self.nodes, self.journal, self.agents.order, lambda: self.run.attempt)
        self._limit = SegmentLimit(step.segment, self.place, self._happened, self.troubles)
        watched = WatchedRun(*about_run, self._happened, self.agents.happened, self.lanes.make, self._limit.left_s)
        self.watchers = Watchers(watched, self.troubles)
        parts = Parts(
            folder,
            self.place,
            self.journal,
            self.lanes,
            self.checkpoints,
            self.ownership,
            self.agents,
            self.nodes,
            self.intake,
        )
        self.ticker = Ticker(
            parts,
            self.troubles,
            timeouts.heartbeat_s,
            before.checkpoint,
            self._requested,
            self._look_at_nodes,
            self.plan.sampling.keep_s,
        )
        self.ticker.notices.of_nodes.told_before(before.findings)
        chain = Chain(step.segment, self.place.chains, step.restart.forget_s)
        self.ending = Ending(parts, self.ticker.sealer, self.ticker.notices, chain)
        beginnings, lane = Beginnings(self.checkpoints, self.journal, before), self.lanes.checkpoints
        able = (self.vetting, self.stager, beginnings, self.checkpoints, lane, self.intake, self.place)
        asides = Asides(*able, self._happened, self._fail)
        self.machines.doings.update({**self._doings(), **asides.doings})
        self._over: asyncio.Future[Union[Ended, SegmentOver]]
        self._ordered: Callable[[], object] = str

    def _part(self, port: str) -> Any:
        """Return what the plan names for a port.

        Raises:
            CordeeError: it names none, or one that is not there.
        """
        return load(part_in(self.plan.node_parts, port))

    async def serve(self, begun: Callable[[], str] = str, ordered: Callable[[], object] = str) -> int:
        """Lead the run to the end of its segment.

        Args:
            begun: called as soon as this supervisor beats by itself; returns what is to be found about its start, or nothing.
            ordered: called whenever the ranks of an attempt have been ordered.

        Returns:
            0 when the run finished or goes on in another segment, EXIT_ENDED when it is over in another way.

        Raises:
            OwnershipError: a newer supervisor owns the run.
        """
        loop = asyncio.get_running_loop()
        self._ordered = ordered
        self._over = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(ORPHANED, lambda: self._happened(Orphaned()))
        loop.add_signal_handler(signal.SIGUSR1, lambda: self._happened(TimeIsNear(monotonic())))
        address, token = self.place.address(), wire.new_token()
        server = await self.place.listen(token, self.epoch, self._connected)
        if self._decided is None:
            await self._say_that_it_leads()
        wire.write_rendezvous(self.folder.rendezvous, address, server.port, self.epoch, token)
        self.troubles.stalled(begun())
        ticker: asyncio.Future[Any] = asyncio.ensure_future(self.ticker.run())
        self._limit.watch()
        self._lead()
        done, _ = await asyncio.wait([ticker, self._over], return_when=asyncio.FIRST_COMPLETED)
        self._limit.cancel()
        try:
            if ticker in done:
                ticker.result()
            over = self.watchers.worded(self._over.result())
            await self.ending.refuse_if_followed()
            self.ticker.ending = True
            await self.watchers.close()
            await self.stager.close()
            self.agents.happened(IsOver())
            attempt = self.run.attempt
            ended = await self.ending.end(over, self.segment, server, attempt.group if attempt else "")
        except OwnershipError:
            await self.ending.stand_down()
            raise
        ticker.cancel()
        await self.ticker.tell_the_rest()
        return 0 if ended is None or ended.state == "finished" else EXIT_ENDED

    async def _say_that_it_leads(self) -> None:
        """Write that this supervisor leads the run, and, at the beginning of a segment, with what."""
        begins = self.segment.number != self.segment.before.segments
        if begins:
            newest = await self.lanes.checkpoints.run(self.checkpoints.newest)
            self.segment = self.segment._replace(checkpoint=newest.name if newest else None)
        number, newest_then = self.segment.number, self.segment.checkpoint
        self.journal.append("supervisor_started", **self.place.identity(), segment=number, checkpoint=newest_then)
        if begins:
            for finding in await self.lanes.looking.run(lambda: remarks.changed_code(self.folder, self.plan)):
                self.journal.append("finding", finding=finding.document())

    def _lead(self) -> None:
        if self._decided is not None:
            self._over.set_result(self._decided)
        elif self.segment.left_over is not None:
            self._over.set_result(self.segment.left_over)
        elif self.segment.before.cancel_requested:
            # A start whose machine was lost may be unknown here: it began on other nodes.
            text = "before it went on" if self.segment.before.segments else "before it started on its nodes"
            self._over.set_result(Ended("cancelled", 1, "cancelled", f"cancelled {text}"))
        else:
            self._happened(Lead(monotonic()))

    # What happens

    def _happened(self, event: RunEvent) -> None:
        self.machines.happened(self.run, event)

    def _number(self) -> Optional[int]:
        return self.run.attempt.number if self.run.attempt is not None else None

    def _changed(self) -> None:
        self._happened(Changed())

    def _signalled(self) -> None:
        self._happened(Terminated(monotonic()))

    def _requested(self, request: dict[str, Any]) -> None:
        if request.get("request") == "cancel":
            self._happened(CancelWanted(monotonic(), str(request.get("by", "request")), bool(request.get("now"))))
        else:
            self.watchers.requested(request)

    def _orders_are_out(self, error: Optional[BaseException]) -> None:
        if error is not None:
            self._fail(error)
        else:
            self._happened(Ordered())
            self._ordered()

    def _prepared(self, error: Optional[BaseException]) -> None:
        self._happened(Preparing(self.vetting.busy))
        if error is not None:
            self._happened(Broke(f"vetting broke: {error!r}"))

    def _look_at_nodes(self) -> None:
        attempt = self.run.attempt
        now = monotonic()
        self.agents.happened(LookedAt(now, attempt.living if attempt is not None else frozenset()))
        self.watchers.second(now)

    def _connected(self, connection: wire.Connection) -> None:
        if connection.peer_role == "client":
            connection.on_message, connection.on_close = self._client_message, self.shells.closed
        else:
            self.agents.connected(connection)

    def _client_message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        asked = decode(message, FROM_CLIENT)
        if isinstance(asked, messages.Requests):
            self.ticker.requests_are_there()
        else:
            self.shells.message(connection, asked, body)

    # What is decided

    def _doings(self) -> dict[type, Callable[[Any], object]]:
        """Return what carries out the commands that are not for a connection, an agent or the journal, by their type."""
        gone = GoneAgents(self.place, self.lanes.looking, self._tell_gone, self.troubles)
        return {
            Complain: lambda command: self.troubles.say(command.text, command.error),
            Take: self._take,
            Prepare: self._prepare,
            AgentLost: self._agent_lost,
            **dict.fromkeys((Changed, ContainerGone), self._happened),
            ReplaceAgent: lambda command: self.lanes.looking.submit(lambda: self.place.replace_agent(*command)),
            FindGone: lambda command: gone.look(command.agents),
            FindFenced: lambda command: gone.look(command.agents),
            **dict.fromkeys((NotCome, GaveUp, NodeSuspected, VetAgain), lambda event: self.agents.happened(event)),
            NewAttempt: lambda _: self.intake.new_attempt(),
            CloseAttempt: self._close_attempt,
            Over: lambda command: self._over.set_result(command.over),
        }

    def _take(self, command: Take) -> None:
        node, message, body = self.nodes[command.node], command.message, command.body
        try:
            self._handle(node, message, body)
        except Exception as error:  # whatever it is: it will not come again, and somebody may wait for what it said
            kind = type(message).__name__
            self.troubles.say(f"{kind}, which the agent of {node.name} said, could not be handled", error)
            self.agents.happened(GaveUp(node.name, f"what its agent said could not be handled: {error}"))

    def _handle(self, node: Node, message: messages.FromAgent, body: bytes) -> None:
        if isinstance(message, messages.Telemetry):
            self.intake.message(node, message, body)
            self.watchers.telemetry(node, message, body)
        elif isinstance(message, (messages.RanksStarted, messages.RanksEnded, messages.StopAnswers)):
            self._happened(RankNews(monotonic(), node.name, message))
            self.watchers.rank_news(node, message)
        elif isinstance(message, (messages.Gathered, messages.PoolNews)):
            self.watchers.asked_for(node, message, body)
        elif isinstance(message, messages.Staging):
            self.stager.message(node, message)
        elif isinstance(message, (messages.ShellOutput, messages.ShellExit)):
            self.shells.agent_message(message, body)
        else:
            if isinstance(message, messages.FreePorts):
                self._happened(PortsFound(message))
            self.vetting.message(node, message, body)

    def _prepare(self, command: Prepare) -> None:
        self.vetting.begin(self.nodes[command.node], command.reason, command.again)
        self._happened(Preparing(True))

    def _agent_lost(self, lost: AgentLost) -> None:
        node = self.nodes[lost.node]
        self.vetting.lost(node, lost.reason)
        self.stager.lost(node, lost.reason)
        self.shells.lost(node, lost.reason)
        self.intake.lost(node)
        self._happened(lost)

    def _tell_gone(self, gone: FoundGone) -> None:
        self.agents.happened(gone)
        self._happened(gone)

    def _close_attempt(self, command: CloseAttempt) -> None:
        self.intake.end_attempt(command.number)
        self.ticker.write_progress(last=True)
        self.ticker.note_checkpoint(command.newest)

    def _fail(self, error: BaseException) -> None:
        """What leads the run cannot go on: this process ends, and the next supervisor begins from the journal."""
        if not self._over.done():
            self._over.set_exception(error)

    def _broke(self, machine: object, error: Exception) -> bool:
        if machine is self.run:
            self._fail(error)
        return machine is self.run


def _refuse_a_second_job(folder: RunFolder, place: Allocation) -> None:
    """Raise where the run is over already, or another job leads it."""
    before = JournalFollower(folder, keep=False).read()
    other = place.duplicate_of(before)
    _refuse_what_is_over(before, folder, place)
    if other is not None:
        raise OwnershipError(f"job {other} leads this run, not this one", given=folder.id)


def _refuse_what_is_over(before: RunState, folder: RunFolder, place: Allocation) -> None:
    """Raise where the run is over; asked before the claim and after it, which may take seconds in which another one ends the run."""
    if before.ended and place.chains and not segments.ended_from_outside(before):
        over = CordeeError(f"the run has {before.state} already", given=folder.id)
        over.exit_code = 0 if before.state == "finished" else EXIT_ENDED
        raise over


def _look_for_garbage() -> None:
    """From now on: what thousands of nodes have made until here stays, and looking through it takes half a second each time."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def main() -> int:
    """Run a supervisor: `python -m cordee.control.supervisor.supervisor --folder RUN`."""
    parser = argparse.ArgumentParser(prog="cordee.control.supervisor.supervisor")
    parser.add_argument("--folder", required=True, type=Path)
    options = parser.parse_args()
    aside = Aside(sys.stderr, Lane("cordee-saying"))
    sys.stderr = cast(TextIO, aside)

    starting = Starting(RunFolder(options.folder))

    async def serve() -> int:
        return await Supervisor(RunFolder(options.folder)).serve(starting.over, _look_for_garbage)

    gc.disable()

    try:
        return run_in_slices(serve())
    except CordeeError as error:
        say(f"cordee supervisor: {error}")
        return (
            EXIT_NOT_OURS if isinstance(error, OwnershipError) else EXIT_REFUSED if may_pass(error) else error.exit_code
        )
    except OSError as error:
        traceback.print_exc()
        return EXIT_REFUSED if may_pass(error) else EXIT_INTERNAL
    finally:
        starting.over()
        aside.drain(_SAY_S)


if __name__ == "__main__":
    sys.exit(main())
