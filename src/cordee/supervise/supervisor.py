"""The supervisor: one process that leads a run inside its allocation, from the first connection to the last line.

It owns the run for one epoch. What it decides is in the journal before it acts, so that the next supervisor, if this one
is killed, knows what was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Optional, TextIO, Union, cast

from cordee import wire
from cordee.checkpoint.folder import Checkpoint
from cordee.checkpoint.owner import BEAT_S, RunCheckpoints
from cordee.clock import monotonic
from cordee.errors import EXIT_ABORT, EXIT_INTERNAL, CordeeError, OwnershipError, RunFolderError
from cordee.hardware.mounts import is_shared
from cordee.runs.disk import DISK, Disk, may_pass
from cordee.runs.folder import RunFolder, say
from cordee.runs.following import JournalFollower
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Aside, Lane, Look
from cordee.supervise import remarks, segments
from cordee.supervise.attempt import Attempt, Outcome
from cordee.supervise.beginning import Beginnings
from cordee.supervise.chain import BY_SCHEDULER, Chain
from cordee.supervise.early_end import EarlyEnd
from cordee.supervise.ends import Ended, SegmentOver
from cordee.supervise.intake import Intake
from cordee.supervise.lanes import Lanes
from cordee.supervise.nodes import Node, usable
from cordee.supervise.ownership import Ownership
from cordee.supervise.paces import LOCAL, SHARED, Paces
from cordee.supervise.place import EXIT_REFUSED, Place, place_of
from cordee.supervise.progress import ProgressPace
from cordee.supervise.restart import Failure, RestartPolicy
from cordee.supervise.shells import Shells
from cordee.supervise.stalls import Stalls
from cordee.supervise.starting import Starting
from cordee.supervise.telling import Telling
from cordee.supervise.vetting import Vetting

# The batch script of a Slurm job knows these two; any other code but 0 makes it start the next supervisor.
EXIT_ENDED = 100
EXIT_NOT_OURS = 101
_TICK_S = 0.2
_LATE_S = 1.0
_SECOND_S = 1.0
_PROGRESS_S, _SHARED_PROGRESS_S = 2.0, 4.0
_CONNECT_PER_NODE_S = 0.1
_CANCEL_GRACE_S = 5.0
_RANK_GRACE_S = 5.0
_FULL_DISK_S = 3600.0
_SEAL_S = 30.0
_LAST_TELEMETRY_S = 10.0
_GIVE_BACK_S = 4.0
_MOST_TROUBLES = 20
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
        self, folder: RunFolder, place: Optional[Place] = None, disk: Disk = DISK, lanes: Optional[Lanes] = None
    ) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads(folder.plan.read_text())
        self.step: dict[str, Any] = self.plan["steps"][0]
        self.request: dict[str, Any] = self.step["request"]
        self.timeouts: dict[str, float] = self.plan["timeouts"]
        self.place = place or place_of(folder, self.plan)
        self._refuse_a_second_job()
        self.ownership = Ownership(folder.control / "epochs", self.place.owner_alive, self.place.identity, disk)
        self.epoch = self.ownership.claim()
        self.place.beat()
        self.lanes = lanes or Lanes()
        self.journal = JournalWriter(folder.journal, f"supervisor-{self.epoch}", self.epoch, disk=disk)
        self.checkpoints = RunCheckpoints(
            self.step["checkpoint"], folder.id, folder.control, self.timeouts["orphan_s"], self.timeouts["kill_s"]
        )
        self.before = segments.state_at_start(self.journal, folder, self.place, self.checkpoints)
        self.beginnings = Beginnings(self.checkpoints, self.journal, self.before)
        self.left_over = segments.left_over(self.before, self.place)
        self.segment = self.before.segments + (self.before.state == "queued" and self.left_over is None)
        self.segment_checkpoint = self.before.segment_checkpoint
        self.chain = Chain(self.step["segment"], self.place.chains)
        self.nodes = {name: Node(name) for name in self.place.node_names()}
        self.journal.lane = self.lanes.writing
        self.intake = Intake(folder.telemetry, self.epoch, self.journal, self.lanes.writing, disk)
        self.telling = Telling(folder.root, self.journal, self.intake, self.lanes.looking)
        self.shells = Shells(self.nodes)
        self.sealer = remarks.Sealer(folder, self.journal, self.lanes.looking)
        self.notices = remarks.Notices(self.intake, self.journal)
        self.policy = RestartPolicy(self.step["restart"]["retries"], self.step["restart"]["backoff_s"])
        self.attempt: Optional[Attempt] = None
        self.newest: Optional[Checkpoint] = None
        self.changed = asyncio.Event()
        self.early = EarlyEnd(self.step, self.journal, self.place, lambda: self.attempt, self.changed)
        job = self.place.allocation.get("job")
        self.vetting = Vetting(self.plan, str(folder.root), self.nodes, self.journal, job, self._prepared)
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._attempts = self.before.attempt
        shared = is_shared(str(folder.root))
        self._progress = ProgressPace(_SHARED_PROGRESS_S if shared else 0.0)
        self._paces = Paces(SHARED if shared else LOCAL, monotonic())
        self._stalls = Stalls(str(folder.root))
        self._owned = "ours"
        self._departed: list[tuple[str, int]] = []
        self._looks = self._make_looks()
        self._ending = self._released = False
        self._troubles: set[str] = set()

    @property
    def _preparing(self) -> bool:
        """Whether a node is being made ready for ranks."""
        return self.vetting.busy or any(node.clearing_since is not None for node in self.nodes.values())

    @property
    def _silent_s(self) -> float:
        """Seconds after which an agent that says nothing may be lost."""
        return 2 * self.timeouts["heartbeat_s"] + _TICK_S

    def _refuse_a_second_job(self) -> None:
        before = JournalFollower(self.folder, keep=False).read()
        other = self.place.duplicate_of(before)
        if before.ended and self.place.chains and not segments.ended_from_outside(before):
            over = CordeeError(f"the run has {before.state} already", given=self.folder.id)
            over.exit_code = 0 if before.state == "finished" else EXIT_ENDED
            raise over
        if other is not None:
            raise OwnershipError(f"job {other} leads this run, not this one", given=self.folder.id)

    def _make_looks(self) -> dict[str, Look]:
        """Return the looks at disks that are repeated, by what they do."""
        looking, checkpoints = self.lanes.looking, self.lanes.checkpoints

        def look(what: str, lane: Any, work: Callable[[], Any], told: Callable[[Any], None]) -> Look:
            return Look(lane, work, told, lambda error: self._trouble(f"{what} failed", error))

        return {
            "requests": look("reading requests", looking, self.place.requests, self._read_requests),
            "owner": look("looking for a newer owner", looking, self.ownership.look, self._owner_seen),
            "others": look("looking after others", looking, self.place.look_after, lambda _: None),
            "gone": look("looking for ended agents", looking, self._find_gone, self._lose_gone),
            "newest": look("looking for checkpoints", checkpoints, self.checkpoints.glance, self._glanced),
            "in use": look("saying that checkpoints are in use", checkpoints, self.checkpoints.beat, lambda _: None),
        }

    async def serve(self, begun: Callable[[], str] = str) -> int:
        """Lead the run to the end of its segment.

        Args:
            begun: called as soon as this supervisor beats by itself; returns what is to be found about its start, or nothing.

        Returns:
            0 when the run finished or goes on in another segment, EXIT_ENDED when it is over in another way.

        Raises:
            OwnershipError: a newer supervisor owns the run.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGUSR1, self.early.time_is_near)
        address = self.place.address()
        token = wire.new_token()
        self.server = await self.place.listen(token, self.epoch, self._connected)
        if self.segment != self.before.segments:
            newest = await self.lanes.checkpoints.run(self.checkpoints.newest)
            self.segment_checkpoint = newest.name if newest else None
        self.journal.append(
            "supervisor_started",
            **self.place.identity(),
            segment=self.segment,
            checkpoint=self.segment_checkpoint,
        )
        if self.segment != self.before.segments:
            for finding in await self.lanes.looking.run(lambda: remarks.changed_code(self.folder, self.plan)):
                self.journal.append("finding", finding=finding.document())
        wire.write_rendezvous(self.folder.rendezvous, address, self.server.port, self.epoch, token)
        late = begun()
        if late:
            self.journal.append("finding", finding=remarks.stalled(late).document())
        ticker = asyncio.ensure_future(self._tick())
        clock = asyncio.ensure_future(self.early.watch_clock())
        clock.add_done_callback(self._clock_ended)
        lead = asyncio.ensure_future(self._lead())
        done, _ = await asyncio.wait({ticker, lead}, return_when=asyncio.FIRST_COMPLETED)
        if ticker in done:
            lead.cancel()
            ticker.result()
        clock.cancel()
        over = lead.result()
        if await self.lanes.looking.run(self.ownership.look) == "newer":  # it has read a journal that has no end
            raise OwnershipError("a newer supervisor owns this run")
        ended = await self._end_segment(over) if isinstance(over, SegmentOver) else over
        if ended is not None:
            await self._end(ended)
        ticker.cancel()
        return 0 if ended is None or ended.state == "finished" else EXIT_ENDED

    async def _lead(self) -> Union[Ended, SegmentOver]:
        try:
            if self.left_over is not None:
                return self.left_over
            if self.before.cancel_requested:
                return Ended("cancelled", 1, "cancelled", "cancelled before it started")
            await self._gather()
            while True:
                await self._judge()
                while self._may_be_replaced:
                    await self._judge()
                nodes = self._choose()
                ports = await self._free_ports(nodes[0])
                if ports is None:
                    lost = Failure("node_lost", node=nodes[0].name, message="its agent told no free port")
                    await self._restart_or_end(lost, progressed=False)
                    continue
                outcome = await self._run_attempt(nodes, ports)
                await self._after(outcome)
        except (Ended, SegmentOver) as over:
            return over

    async def _gather(self) -> None:
        """Wait until all nodes are connected and vetted, or their time is up."""
        began = monotonic()
        patience_s = self.timeouts["connect_s"] + _CONNECT_PER_NODE_S * len(self.nodes)
        if (
            self.before.attempt
        ):  # where nothing is heard, ranks of an earlier supervisor may run until their lease is over
            patience_s = max(patience_s, self.timeouts["lost_s"])
        deadline = began + patience_s
        while any(node.session is None for node in self.nodes.values()):
            if not await self._wait_change(deadline - monotonic()):
                break
        connected = [node.name for node in self.nodes.values() if node.session is not None]
        for node in self.nodes.values():
            if node.session is None:
                reason = f"no agent connected within {monotonic() - began:.0f} s"
                self.journal.append("node_lost", node=node.name, reason=reason)
                self._replace_agent(node)
        if len(connected) < self.request["min_nodes"]:
            text = (
                f"{len(connected)} of {len(self.nodes)} agents connected, {self.request['min_nodes']} nodes are needed"
            )
            raise SegmentOver("no_agents", text + f"; see {self.folder.control}/agent*.log", EXIT_INTERNAL)
        while self._preparing:
            await self._wait_change(None)

    async def _hear_of_replaced(self) -> None:
        """Wait for the next agents of nodes that were lost while they were prepared, if there are too few without them."""
        deadline = monotonic() + self.timeouts["connect_s"]
        while sum(node.ready for node in self.nodes.values()) < int(self.request["min_nodes"]):
            comes = any(node.incarnation and not node.ready for node in self.nodes.values())
            if not comes or (monotonic() >= deadline and not self._preparing):
                return
            await self._wait_change(_SECOND_S)

    async def _judge(self) -> None:
        """Judge the nodes that are new, with all there of which something may be heard."""
        await self._hear_of_replaced()
        await self._hear_of_nodes()
        if self._may_be_replaced:
            await self._wait_for_nodes()
        refusal = await self.vetting.conclude()
        self.early.raise_if_over()
        if refusal is not None:
            raise Ended("failed", EXIT_ABORT, "vetting", refusal)
        await self._hear_of_nodes()

    @property
    def _too_few(self) -> bool:
        """Whether there are fewer nodes than the run can do with."""
        return len(usable(list(self.nodes.values()))) < int(self.request["min_nodes"])

    @property
    def _may_be_replaced(self) -> bool:
        """Whether a node that is needed was lost while it was prepared: another agent may come for it."""
        return self._too_few and any(node.incarnation and not node.ready for node in self.nodes.values())

    async def _hear_of_nodes(self) -> None:
        """Wait until nodes that are needed and whose connection has just broken are heard of again, or lost."""
        while len(usable(list(self.nodes.values()))) < self.request["nodes"] and any(
            node.ready and node.session is not None and node.connection is None for node in self.nodes.values()
        ):
            await self._wait_change(_SECOND_S)

    def _choose(self) -> list[Node]:
        """Return the nodes of the next attempt, or end the run by vetting."""
        candidates = usable(list(self.nodes.values()))
        wanted, least = self.request["nodes"], self.request["min_nodes"]
        if len(candidates) < least:
            judged = [node for node in self.nodes.values() if node.ready and node.verdict in ("bad", "unknown")]
            reasons = [
                f"{node.name} is {node.verdict}: {result['check']}: {result['evidence']}"
                for node in judged
                for result in node.results
                if result["status"] in ("fail", "unknown")
            ]
            text = f"{len(candidates)} healthy nodes, {least} are needed"
            if not judged:
                raise SegmentOver("node_lost", text)
            raise Ended("failed", EXIT_ABORT, "vetting", "; ".join([text, *reasons[:8]]))
        previous = {node.name for node in self.attempt.nodes} if self.attempt else set()
        candidates.sort(key=lambda node: node.name not in previous)
        place = {name: at for at, name in enumerate(self.nodes)}
        chosen, spare = candidates[:wanted], candidates[wanted:]
        chosen.sort(key=lambda node: place[node.name])
        excluded = [node.name for node in self.nodes.values() if node.ready and node.verdict in ("bad", "unknown")]
        spares = [node.name for node in spare]
        self.journal.append("nodes_chosen", nodes=[node.name for node in chosen], spares=spares, excluded=excluded)
        return chosen

    async def _run_attempt(self, nodes: list[Node], ports: list[int]) -> Outcome:
        begins = await self.lanes.checkpoints.run(self.beginnings.next)
        self.early.raise_if_over()
        self._attempts += 1
        self.newest = begins.own
        per_node, launch = self.request["ranks_per_node"], self.step["tasks"]["launch"]
        self.attempt = Attempt(self._attempts, nodes, per_node, launch, self.journal, self._silent_s)
        self.early.agreement = None
        self.intake.new_attempt()
        self.journal.append(
            "attempt_started",
            attempt=self.attempt.number,
            world_size=self.attempt.world_size,
            nodes=self.attempt.placement(),
            master={"address": nodes[0].address, "port": ports[0]},
            checkpoint=begins.checkpoint.name if begins.checkpoint else None,
            resume_step=begins.checkpoint.step if begins.checkpoint else None,
            checkpoint_path=begins.path,
            other_run={"run": begins.run} if begins.other else None,
        )
        await self.lanes.checkpoints.run(self.beginnings.trains)
        await self.journal.durable()
        self.attempt.start(ports, begins.path)
        outcome = await self.attempt.ended()
        if not self.attempt.all_ended():
            grace = 0.0 if outcome.kind in ("node_lost", "segment") else self._grace(outcome)
            most_s = grace + self.timeouts["kill_s"] + _SECOND_S
            await self._fence(await self.attempt.stop(grace, most_s, lambda: self.early.over is None))
        await self.lanes.checkpoints.run(self.checkpoints.end_training)
        return outcome

    def _grace(self, outcome: Outcome) -> float:
        return _CANCEL_GRACE_S if outcome.kind == "cancelled" else _RANK_GRACE_S

    async def _fence(self, nodes: list[Node]) -> None:
        """Replace the agents whose ranks would not end, and wait: nothing of this attempt may write beside the next.

        It is safe to go on once the agent is gone or another one serves the node, either of which kills what it started,
        or once the lease of its ranks is over.
        """
        before = {node: node.incarnation for node in nodes}
        for node in nodes:
            self._lose(node, "its ranks did not end when killed")
        over_s = self.timeouts["lease_s"] + self.timeouts["kill_s"]
        while self.early.over is None and any(
            node.incarnation == number and node.silent_s < over_s and not self.place.agent_gone(node.name, number)
            for node, number in before.items()
        ):
            await asyncio.sleep(_TICK_S)

    async def _after(self, outcome: Outcome) -> None:
        """Write how the attempt ended, then return to have another one, or raise Ended."""
        assert self.attempt is not None
        newest = await self.lanes.checkpoints.run(self.checkpoints.newest)
        progressed = newest is not None and (self.newest is None or newest != self.newest)
        self.intake.end_attempt(self.attempt.number)
        self._write_progress(last=True)
        self._note_checkpoint(newest)
        sentence = outcome.failure.sentence() if outcome.failure else outcome.reason
        number = self.attempt.number
        self.journal.append(
            "attempt_ended",
            attempt=number,
            outcome=outcome.kind,
            reason=sentence,
            progress=progressed,
            failure=outcome.failure.document() if outcome.failure else None,
        )
        if outcome.kind == "finished":
            raise Ended("finished", 0, "finished", "all ranks exited with code 0")
        if self.place.chains and outcome.failure is not None and outcome.failure.signal == "SIGTERM":
            await self.early.termination()
        self.early.raise_if_over()
        assert outcome.failure is not None
        await self._restart_or_end(outcome.failure, progressed)

    async def _restart_or_end(self, failure: Failure, progressed: bool) -> None:
        """Return when another attempt is to begin, or raise Ended."""
        decision = self.policy.decide(failure, progressed)
        if decision.crash_loop:
            count = decision.failures_without_progress
            self.journal.append("crash_loop", rank=failure.rank, message=failure.message, count=count)
        if not decision.restart:
            raise Ended("failed", failure.exit_code, decision.reason, decision.text)
        await self._pause_before_restart(decision.delay_s, decision.failures_without_progress)

    async def _pause_before_restart(self, delay_s: float, failures: int) -> None:
        self.journal.append(
            "restart_scheduled", attempt=self._attempts, delay_s=delay_s, failures_without_progress=failures
        )
        deadline = monotonic() + delay_s
        while monotonic() < deadline:
            await self._wait_change(deadline - monotonic())
            self.early.raise_if_over()
        await self._wait_for_nodes()

    async def _wait_for_nodes(self) -> None:
        """Wait until there are as many nodes as the run wants, or no more of them come."""
        deadline = monotonic() + self.timeouts["connect_s"]
        while self._preparing or len(usable(list(self.nodes.values()))) < self.request["nodes"]:
            self.early.raise_if_over()
            left = deadline - monotonic()
            if left <= 0 and not self._preparing:
                break
            await self._wait_change(left if left > 0 else None)
        self.early.raise_if_over()
        if self._too_few:
            lost = [node.name for node in self.nodes.values() if node.connection is None]
            if lost:
                text = f"{', '.join(lost)} did not come back within {self.timeouts['connect_s']:.0f} s and no spare is left"
                raise SegmentOver("node_lost", text)

    async def _free_ports(self, node: Node) -> Optional[list[int]]:
        """Return two free ports of a node, None when it is lost before it has told them."""
        session, question = node.session, f"{node.name} {node.new_question()}"
        answer = self._answers[question] = asyncio.get_running_loop().create_future()
        asked = asyncio.get_running_loop().time()
        node.send({"t": "port", "id": question, "host": node.address, "count": 2})
        while node.session is not None and node.session is session:
            try:
                told = await asyncio.wait_for(asyncio.shield(answer), _SECOND_S)
            except asyncio.TimeoutError:
                if asyncio.get_running_loop().time() - asked > self.timeouts["lost_s"] and node.connection is not None:
                    self._lose(node, "it gave no free port")
                self.early.raise_if_over()
                continue
            if not told["ports"]:
                raise Ended("failed", EXIT_INTERNAL, "no_port", f"no free port on {node.name}: {told['text']}")
            return list(told["ports"])
        self._answers.pop(question, None)
        return None

    # Connections

    def _connected(self, connection: wire.Connection) -> None:
        if connection.peer_role == "client":
            connection.on_message, connection.on_close = self._client_message, self.shells.closed
            return
        node = self.nodes.get(connection.peer_name)
        if node is None:
            connection.close(f"no node {connection.peer_name!r} belongs to this run")
            return
        connection.on_message = self._agent_message
        connection.on_close = self._agent_closed

    def _client_message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        if message.get("t") == "requests":
            self._paces.news("requests", monotonic())
        else:
            self.shells.message(connection, message, body)

    def _agent_message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        node = self.nodes[connection.peer_name]
        kind = message.get("t")
        if kind == "hello":
            self._hello(node, connection, message)
            return
        if node.connection is not connection or not node.take(message, body):
            return
        try:
            self._take(node, message, body)
        except Exception as error:  # whatever it is: it will not come again, and somebody may wait for what it said
            self._trouble(f"{kind!r}, which the agent of {node.name} said, could not be handled", error)
            self._lose(node, f"what its agent said could not be handled: {error}")

    def _take(self, node: Node, message: dict[str, Any], body: bytes) -> None:
        kind = message.get("t")
        if kind == "telemetry":
            node.dropped_log_bytes = message.get("dropped_log_bytes", node.dropped_log_bytes)
            node.unread_bytes = message.get("unread_bytes", node.unread_bytes)
            node.queued_log_bytes = message.get("queued_log_bytes", node.queued_log_bytes)
            self.intake.message(node, message, body)
        elif kind in ("container_done", "setup_done", "checks_output", "checks_done", "clock", "port"):
            self.vetting.message(node, message, body)
            if message.get("id") in self._answers:
                self._answers.pop(message["id"]).set_result(message)
        elif kind == "container_lost":
            self._container_lost(node, message["text"])
        elif kind == "cleared":
            node.clearing_since = None
            self.vetting.begin(node)
        elif kind in ("shell_output", "shell_exit"):
            self.shells.agent_message(message, body)
        elif self.attempt is not None and message.get("attempt") == self.attempt.number:
            self._attempt_message(self.attempt, node, message)

    def _attempt_message(self, attempt: Attempt, node: Node, message: dict[str, Any]) -> None:
        if message["t"] == "rank_started":
            attempt.rank_started(message["rank"], node.name, message["pid"])
        elif message["t"] == "rank_exit":
            attempt.rank_ended(message["rank"], node.name, message)
        elif message["t"] == "stop_answers" and self.early.agreement is not None:
            self.early.agreement.answered(message["answers"])

    def _hello(self, node: Node, connection: wire.Connection, hello: dict[str, Any]) -> None:
        if hello["incarnation"] < node.incarnation or hello["epoch"] > self.epoch:
            older = "agent serves this node" if hello["epoch"] <= self.epoch else "supervisor leads this run"
            connection.close(f"a newer {older}")
            return
        if node.connection is not None and hello["incarnation"] == node.incarnation and hello["pid"] != node.pid:
            connection.send({"t": "bye", "another": True})
            return
        goes_on = node.goes_on(hello)
        if not goes_on:
            if node.incarnation:
                self._node_gone(node, "its agent was replaced")
            node.meet(hello, self.epoch)
        elif node.connection is not None and node.connection is not connection:
            node.connection.abort("replaced by a newer connection")
        node.address = self.place.address_of(connection)
        node.welcome(connection, hello, self.epoch, self.segment)
        living = bool(hello.get("living"))
        if not goes_on:
            fields = {key: hello[key] for key in ("incarnation", "host", "pid", "start_ticks", "cores", "python")}
            self.journal.append("node_connected", durable=False, node=node.name, **fields)
            self._clear_or_prepare(node, living)
        elif living and (self.attempt is None or hello["attempt"] != self.attempt.number) and node.ready:
            self._clear_or_prepare(node, living)
        self.changed.set()

    def _clear_or_prepare(self, node: Node, living: bool) -> None:
        """Prepare a node for ranks; where some run that belong to no attempt of ours, these must have ended first."""
        node.ready = False
        if living:
            node.clearing_since = asyncio.get_running_loop().time()
            node.send({"t": "clear"})
        else:
            self.vetting.begin(node)

    def _container_lost(self, node: Node, reason: str) -> None:
        """The agent lives, and what its ranks ran in does not: the attempt is over, and the node prepared anew."""
        if self._ending:
            return
        self.journal.append("container_lost", node=node.name, reason=reason)
        if self.attempt is not None and self.attempt.has(node):
            self.attempt.interrupt(Outcome("node_lost", Failure("node_lost", node=node.name, message=reason)))
        self.vetting.begin(node, reason)
        self.changed.set()

    def _prepared(self, error: Optional[BaseException]) -> None:
        if error is not None:
            self.early.over = Ended("failed", EXIT_INTERNAL, "internal", f"vetting broke: {error!r}")
        self.changed.set()

    def _agent_closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        node = self.nodes[connection.peer_name]
        if node.connection is connection:
            node.connection = None
            node.last_heard = asyncio.get_running_loop().time()
            self.changed.set()

    def _lose(self, node: Node, reason: str) -> None:
        self.journal.append("node_lost", node=node.name, reason=reason)
        self._node_gone(node, reason)
        self._replace_agent(node)

    def _replace_agent(self, node: Node) -> None:
        self.lanes.looking.submit(lambda: self.place.replace_agent(node.name, node.incarnation))

    def _node_gone(self, node: Node, reason: str) -> None:
        node.give_up(reason)
        self.vetting.lost(node, reason)
        self.shells.lost(node, reason)
        self.intake.lost(node)
        if self.attempt is not None:
            self.attempt.node_lost(node, reason)
        self.changed.set()

    # Time

    async def _tick(self) -> None:
        """Everything that happens because time passes; returns only when the run belongs to somebody else."""
        due = {
            "second": 0.0,
            "lease": 0.0,
            "progress": monotonic() + _PROGRESS_S,
            "beat": 0.0,
            "seal": monotonic() + _SEAL_S,
        }
        last = monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now = monotonic()
            if now - last > _LATE_S:
                self._forgive_silence(now - last)
            last = now
            if now >= due["lease"]:
                due["lease"] = now + self.timeouts["heartbeat_s"]
                self._do("renewing leases", self._renew_leases)
            self._do("storing telemetry", self.intake.tick)
            self._do("the sign of life", self.place.beat)
            if self._paces.due("requests", now):
                self._looks["requests"].begin()
            self._do("telling the news", lambda: self.telling.look(self.nodes.values()))
            if now >= due["second"]:
                due["second"] = now + _SECOND_S
                if self._paces.due("owner", now):
                    self._looks["owner"].begin()
                self._looks["others"].begin()
                if self._owned == "newer":
                    raise OwnershipError("a newer supervisor owns this run")
                if self._owned == "gone":
                    raise RunFolderError("the run's folder was deleted", given=str(self.folder.root))
                self._say_stalls(now)
                if not self._ending:
                    self._do("looking for silent nodes", self._look_for_silence)
            if now >= due["seal"] and not self._ending:
                due["seal"] = now + _SEAL_S
                self._do("sealing", self.sealer.begin)
            if self._paces.due("checkpoints", now):
                self._looks["newest"].begin()
            if now >= due["beat"]:
                due["beat"] = now + BEAT_S
                self._looks["in use"].begin()
            if now >= due["progress"]:
                due["progress"] = now + _PROGRESS_S
                self._do("writing the progress", self._write_progress)
                self._do("writing findings", self.notices.tell)
                self._do("writing the journal", self.journal.flush)

    def _do(self, what: str, work: Callable[[], Any]) -> None:
        """Do what is due; where it fails that is said, and all else goes on: without its beat this process is killed."""
        try:
            work()
        except Exception as error:
            self._trouble(f"{what} failed", error)

    def _trouble(self, text: str, error: BaseException) -> None:
        """Say once, in this supervisor's log and as a finding, what could not be done."""
        text = f"the supervisor: {text}: {type(error).__name__}: {error}"
        if text in self._troubles or len(self._troubles) >= _MOST_TROUBLES:
            return
        self._troubles.add(text)
        say(f"cordee: {text}")
        traceback.print_exception(type(error), error, error.__traceback__)
        self.journal.append("finding", finding=remarks.trouble(text).document())

    def _owner_seen(self, owned: str) -> None:
        self._owned = owned

    def _say_stalls(self, now: float) -> None:
        """Say that the run folder's disk refuses or stands still, and that it does not any more."""
        error = self.journal.last_error
        words = (error.strerror or str(error)) if error is not None else ""
        said = self._stalls.look(now, self.journal.refused_since, words, self.lanes.busy_s)
        if said.log:
            say(f"cordee supervisor: {said.log}")
        if said.finding:
            self.journal.append("finding", finding=remarks.stalled(said.finding).document())

    def _clock_ended(self, clock: asyncio.Future[None]) -> None:
        error = None if clock.cancelled() else clock.exception()
        if error is not None:
            self._trouble("the time limit is not watched any more", error)

    def _forgive_silence(self, seconds: float) -> None:
        """Do not blame the nodes for time in which this process was held up, by a slow file system for example."""
        for node in self.nodes.values():
            node.last_heard += seconds

    def _renew_leases(self) -> None:
        for node in self.nodes.values():
            node.renew_lease()

    def _look_for_silence(self) -> None:
        self._departed = [
            (node.name, node.incarnation) for node in self.nodes.values() if node.ready and node.connection is None
        ]
        if self._departed:
            self._looks["gone"].begin()
        now = asyncio.get_running_loop().time()
        for node in self.nodes.values():
            missed = self.attempt is not None and self.attempt.runs_on(node)
            if node.clearing_since is not None and now - node.clearing_since > self.timeouts["lost_s"]:
                self._lose(node, "ranks of an earlier attempt do not end there")
            elif (node.session is not None or missed) and node.silent_s > self.timeouts["lost_s"]:
                how = "its agent is silent" if node.connection is not None else "its agent is gone"
                self._lose(node, f"{how} for {node.silent_s:.0f} s")

    def _find_gone(self) -> list[tuple[str, int]]:
        return [one for one in self._departed if self.place.agent_gone(*one)]

    def _lose_gone(self, gone: list[tuple[str, int]]) -> None:
        for name, incarnation in gone:
            node = self.nodes[name]
            if node.ready and node.connection is None and node.incarnation == incarnation and not self._ending:
                self._lose(node, "its agent ended")

    def _read_requests(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            if request.get("request") == "cancel":
                self.early.cancel(str(request.get("by", "request")), now=bool(request.get("now")))

    def _signalled(self) -> None:
        if not self._ending:
            self.early.terminated()

    def _write_progress(self, last: bool = False) -> None:
        now = (self.intake.step, self.intake.total)
        if self._progress.due(monotonic(), *now, last=last):
            self.telling.unmarked += 1
            self.journal.append("progress", durable=False, waits=True, step=now[0], total=now[1])

    def _glanced(self, newest: Optional[Checkpoint]) -> None:
        self._note_checkpoint(newest)
        self._paces.cost("checkpoints", self.checkpoints.operations, monotonic())

    def _note_checkpoint(self, newest: Optional[Checkpoint]) -> None:
        if newest is not None and newest.name != self.before.checkpoint:
            self.before.checkpoint = newest.name
            self._paces.news("checkpoints", monotonic())
            self.journal.append("checkpoint_seen", durable=False, name=newest.name, step=newest.step)

    async def _wait_change(self, seconds: Optional[float]) -> bool:
        """Wait for news of nodes; False when the time is up."""
        if seconds is not None and seconds <= 0:
            return False
        self.early.raise_if_over()
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        self.early.raise_if_over()
        return True

    # The end

    async def _end_segment(self, over: SegmentOver) -> Optional[Ended]:
        """Have the run go on in another allocation and return None, or return how it ends because it cannot."""
        self._ending = True
        newest = await self.lanes.checkpoints.run(self.checkpoints.newest)
        progressed = newest is not None and newest.name != self.segment_checkpoint
        how = self.chain.next(over.reason)
        if self.left_over is None:
            refusal = self.chain.refusal(over, self.segment, progressed, self.before)
            if refusal is not None:
                return Ended("failed", over.exit_code, refusal.reason, refusal.text)
            segments.write_end(self.journal, self.segment, over.reason, newest, progressed, how)
        await self._release_nodes()
        self.server.close()
        await self._write_the_rest()
        if how == BY_SCHEDULER:
            return None
        try:
            going = await asyncio.get_running_loop().run_in_executor(None, self.place.go_on, how)
        except CordeeError as error:
            return Ended("failed", EXIT_INTERNAL, "not_continued", f"{over.text}, and it cannot continue: {error.text}")
        self.journal.append("continued", **going)
        return None

    async def _end(self, ended: Ended) -> None:
        self._ending = True
        await self._release_nodes()
        for finding in remarks.closing_findings(list(self.nodes.values()), self.intake):
            self.journal.append("finding", finding=finding.document())
        self.notices.tell()
        self.journal.append("ended", state=ended.state, exit_code=ended.exit_code, reason=ended.reason, text=ended.text)
        self.server.close()
        await self._write_the_rest()
        await remarks.close(self.sealer, self.folder, _GIVE_BACK_S if self.place.chains else None)

    async def _release_nodes(self) -> None:
        """Take in what the agents still have to say, and let them go; once."""
        if self._released:
            return
        self._released = True
        for node in self.nodes.values():
            node.tell({"t": "stop", "group": self.attempt.group if self.attempt else "", "grace_s": 0.0})
        await asyncio.sleep(0)
        deadline = monotonic() + _LAST_TELEMETRY_S
        while (
            any((node.unread_bytes or node.queued_log_bytes) and node.connection for node in self.nodes.values())
            and monotonic() < deadline
        ):
            self.intake.flush()
            await asyncio.sleep(_TICK_S)
        await self.intake.close(_LAST_TELEMETRY_S)
        for node in self.nodes.values():
            node.tell({"t": "bye"})
            if node.connection is not None:
                await node.connection.drain()

    async def _write_the_rest(self) -> None:
        """Wait for room on a full disk: without its last line the run would be begun again."""
        written = asyncio.ensure_future(self.journal.durable())
        deadline = monotonic() + _FULL_DISK_S
        while not written.done() and monotonic() < deadline:
            await asyncio.wait({written}, timeout=_SECOND_S)
            if isinstance(self.journal.last_error, FileNotFoundError):  # nothing is left to write to
                break
        if written.done():
            await self.intake.write_the_rest(_LAST_TELEMETRY_S)
        written.cancel()


def main() -> int:
    """Run a supervisor: `python -m cordee.supervise.supervisor --folder RUN`."""
    parser = argparse.ArgumentParser(prog="cordee.supervise.supervisor")
    parser.add_argument("--folder", required=True, type=Path)
    options = parser.parse_args()
    aside = Aside(sys.stderr, Lane("cordee-saying"))
    sys.stderr = cast(TextIO, aside)

    starting = Starting(RunFolder(options.folder))

    async def serve() -> int:
        return await Supervisor(RunFolder(options.folder)).serve(starting.over)

    try:
        return asyncio.run(serve())
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
