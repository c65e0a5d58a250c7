"""The agent: one process on every node, the only launcher there, on one authenticated connection to the supervisor.

It keeps no truth of its own. What it reports is stored by the supervisor and acknowledged; until then the agent, and the
ranks' channel files behind it, hold it. A supervisor with a newer epoch makes it kill whatever older epochs started, but for
tasks of a pool, which go on for the new one. Without a supervisor all end with their lease.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Optional

from cordee import wire
from cordee.control.agent.companions import CompanionHost, Companions
from cordee.control.agent.enclosure import AgentSurroundings, enclosure_of
from cordee.control.agent.machine import NodeTasks, in_words_of_hello
from cordee.control.agent.node_log import NodeLog
from cordee.control.agent.orders import Handlers, OrderTaker
from cordee.control.agent.preparation import Preparation
from cordee.control.agent.ranks.attempt import NodeAttempt, Present
from cordee.control.agent.ranks.attempts import Attempts
from cordee.control.agent.ranks.commands import RankCommands, RankEnvironment
from cordee.control.agent.ranks.environment import base_environment
from cordee.control.agent.rescue import Rescue, claim_here
from cordee.control.agent.shells import NodeShells
from cordee.control.agent.supervisor_search import SupervisorSearch
from cordee.control.agent.telemetry.reporter import Reporting
from cordee.control.agent.troubles import NodeTroubles, words_of
from cordee.control.agent.uplink import Uplink
from cordee.control.world import AttemptWorld
from cordee.core.errors import CordeeError
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.folder import RunFolder, say
from cordee.runs.plan import RunPlan, read_plan
from cordee.wire.messages import Ack, Bye, Hello, Lease, Welcome

_SUPERVISOR_FIRST_S = 5.0
_LEASE_LOOKS = 8


class Agent:
    """One node's agent: makes the parts, and lives while there is a supervisor to serve.

    Args:
        folder: the run's folder.
        node: this node's name.
        incarnation: counts the agents that this node has had in this run; greater replaces smaller.
        rescue: brings the run back when nobody else can; None where a keeper does.
        machine: what it runs on.
    """

    def __init__(
        self,
        folder: RunFolder,
        node: str,
        incarnation: int,
        rescue: Optional[Rescue] = None,
        machine: Optional[NodeTasks] = None,
    ) -> None:
        self._folder, self._node, self._incarnation, self._rescue = folder, node, incarnation, rescue
        self._machine = machine = machine or NodeTasks()
        plan = read_plan(folder)
        self._timeouts = plan.timeouts
        self._loop = asyncio.get_running_loop()
        self._ending, self._disconnected = asyncio.Event(), asyncio.Event()
        self._last_act: Optional[asyncio.Task[None]] = None
        self._dismissed: Optional[Bye] = None
        self._troubles = NodeTroubles(node)
        self._uplink = Uplink(self._timeouts.lease_s, self._timeouts.heartbeat_s, self._give_up)
        owner = f"{plan.run}/{node}/"
        machine.take_over(owner)
        self._channels = machine.channels(plan.run, node, self._troubles.tell, folder.root)
        kill_s = self._timeouts.kill_s
        self._watched = WatchedTasks(lambda **told: machine.tasks(f"{owner}{incarnation}", kill_s=kill_s, **told))
        self._slots = machine.slots()
        self._present = Present()
        self._log = NodeLog(folder.logs, node, machine, plan.logs_keep_bytes, self._pause_output)
        self._companions = Companions(plan, node)
        self._reporting = Reporting(
            plan,
            folder,
            node,
            machine,
            self._watched,
            self._slots,
            self._channels,
            self._log,
            self._uplink,
            self._troubles,
            self._present.pids,
            self._companions,
        )
        self._seeking = self._make_seeking(plan)
        self._orders = self._make_orders(plan)

    def _make_seeking(self, plan: RunPlan) -> SupervisorSearch:
        request = plan.step.request
        nodes = request.nodes + request.spare_nodes
        keeper = self._start_keeper if self._rescue is None else None
        return SupervisorSearch(self._folder, self._node, nodes, self._machine, self._timeouts.orphan_s, keeper)

    def _make_orders(self, plan: RunPlan) -> OrderTaker:
        """Make the parts that do what is ordered, and the table of them."""
        watched, channels, uplink, log = self._watched, self._channels, self._uplink, self._log
        own = [str(self._folder.root), str(channels.folder), *self._companions.shown()]
        around = AgentSurroundings(plan, own, watched, uplink.news, log.write_own, self._present.kill, self._node)
        self._enclosure = enclosure = enclosure_of(around)
        environment = RankEnvironment(lambda: base_environment(os.environ, plan.step.tasks, enclosure))
        slots = self._slots
        companions = self._companions
        commands = RankCommands(plan, enclosure, channels, environment, slots, companions.environment)

        def attempt(world: AttemptWorld) -> NodeAttempt:
            return NodeAttempt(world, watched, channels, enclosure, log, slots, self._reporting, uplink)

        self._attempts = Attempts(plan, self._machine, watched, channels, uplink, self._present, commands, attempt)
        self._preparation = Preparation(
            plan, self._folder, self._node, watched, enclosure, environment, channels, log, uplink
        )
        about = {"CORDEE_RUN_ID": plan.run, "CORDEE_RUN_DIR": str(self._folder.root), "CORDEE_NODE": self._node}
        self._shells = NodeShells(watched, uplink, lambda: {**environment.now, **about}, enclosure)
        present = self._present
        lent = CompanionHost(
            lambda: present.number,
            present.pids,
            lambda: channels.steps(present.number),
            lambda: channels.folder,
            self._folder.node_zip,
            watched,
            uplink,
            self._reporting.add,
        )
        handlers: Handlers = {
            Lease: uplink.renew,
            Bye: self._bye,
            Ack: self._reporting.stored,
            **enclosure.handlers,
            **self._preparation.handlers,
            **self._attempts.handlers,
            **self._shells.handlers,
            **companions.attach(lent),
        }
        return OrderTaker(uplink, self._troubles, self._welcome, handlers)

    async def serve(self) -> int:
        """Connect, obey, reconnect, until told to end or orphaned; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._terminated)
        reporting = asyncio.ensure_future(self._reporting.run(lambda: self._present.number))
        lease = asyncio.ensure_future(self._watch_lease())
        late = asyncio.ensure_future(self._hear_late())
        looking = asyncio.ensure_future(self._companions.run(self._troubles, self._reporting.send))
        self._machine.tidy()
        self._reporting.start()
        code = 0
        try:
            code = await self._obey()
            await self._finish_last_act(code)
        finally:
            reporting.cancel()
            lease.cancel()
            late.cancel()
            looking.cancel()
            await self._attempts.end()
            await self._enclosure.close()
            await self._companions.close()
            self._watched.tasks.kill_everything()
            if self._uplink.connection is not None:
                self._uplink.connection.close("the agent ends")
            self._log.close()
            if code == 0 and self._leaves_nothing:
                self._channels.remove()
        return code

    async def _obey(self) -> int:
        """Serve one supervisor after the other; returns 1 when there is none any more."""
        while not self._ending.is_set():
            connection = await self._seeking.connect(self._ending, on_message=self._message, on_close=self._closed)
            if connection is None:
                return 0 if self._ending.is_set() else await self._orphaned()
            self._disconnected.clear()
            self._uplink.connected(connection)
            attempt, living = self._present.number, tuple(self._present.living)
            identity = self._machine.identity()
            slots, epoch = in_words_of_hello(self._slots.has), self._uplink.epoch
            self._uplink.greet(
                Hello(self._incarnation, **identity, slots=slots, epoch=epoch, attempt=attempt, living=living)
            )
            await _first_of(self._disconnected, self._ending)
        return 0

    async def _orphaned(self) -> int:
        self._watched.tasks.kill_everything()
        say(f"cordee agent {self._node}: no supervisor, giving up: {self._seeking.refused}")
        if self._rescue is not None and await self._machine.has(self._folder):
            await self._rescue.orphaned()
        return 1

    def _start_keeper(self) -> None:
        """Start a keeper: keeper and supervisor may both be dead. One that is not needed ends itself at once."""
        try:
            self._watched.tasks.spared.add(self._machine.start_keeper(self._folder))
        except OSError as error:
            say(f"cordee agent {self._node}: cannot start a keeper: {error}")

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        self._orders.receive(connection, message, body)
        self._shells.go_on()

    def _closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        if connection is self._uplink.connection:
            self._uplink.closed()
            self._reporting.closed()
            self._disconnected.set()

    def _welcome(self, welcome: Welcome, stamped: dict[str, Any]) -> None:
        before = self._uplink.epoch
        if self._uplink.welcome(welcome, stamped):
            # A new session with the same supervisor means that it has given this node up, and its tasks to others.
            if self._uplink.epoch > before:
                self._attempts.hand_over()
            else:
                self._attempts.forget()
            self._preparation.forget()
        self._seeking.found()
        self._log.begin(welcome.segment)
        self._reporting.connected()

    def _pause_output(self, paused: bool) -> None:
        self._watched.tasks.pause_output(paused)
        self._attempts.pause_output(paused)

    async def _watch_lease(self) -> None:
        """Show the supervisor several times in a lease that the agent lives; end the ranks when the lease is over."""
        pause, looked_at = min(self._timeouts.heartbeat_s, self._timeouts.lease_s / _LEASE_LOOKS), self._loop.time()
        while True:
            await asyncio.sleep(pause)
            late_s, looked_at = self._loop.time() - looked_at - pause, self._loop.time()
            try:
                self._attempts.look_at_lease(late_s)
                self._uplink.beat()
            except Exception as error:  # whatever it is: ranks without a lease must not run on
                self._troubles.tell(f"the lease of this node's ranks is not watched well: {words_of(error)}")

    # The end

    def _bye(self, order: Bye, body: bytes) -> None:
        self._dismissed = order
        self._ending.set()

    @property
    def _leaves_nothing(self) -> bool:
        """Whether nobody is to read what ranks have said: it is stored, or the supervisor says what is lost."""
        return self._channels.drained if self._dismissed is None else not self._dismissed.another

    def _give_up(self, error: CordeeError) -> None:
        """Too much waits to be told: this agent cannot go on."""
        say(f"cordee agent {self._node}: gives up: {error}")
        self._end()

    def _terminated(self) -> None:
        if self._rescue is None:
            self._end()
        elif self._last_act is None:
            self._last_act = asyncio.ensure_future(self._end_with_the_job(self._rescue))

    async def _hear_late(self) -> None:
        """A signal that came before this agent could take it is asked for."""
        if self._rescue is not None and await self._rescue.unheard(self._led):
            self._terminated()

    def _led(self) -> bool:
        return self._uplink.connection is not None or self._ending.is_set()

    async def _end_with_the_job(self, rescue: Rescue) -> None:
        """The job is ended: the supervisor, told the same, has the first word on what becomes of the ranks.

        Without any supervisor, an agent of a job that runs on stays: it brings the run back, if nobody else does.
        """
        await rescue.terminated(self._led)
        try:
            await asyncio.wait_for(self._ending.wait(), _SUPERVISOR_FIRST_S)
        except asyncio.TimeoutError:
            self._end()

    async def _finish_last_act(self, code: int) -> None:
        """Wait until it is known what becomes of the run; where it gave up waiting for a supervisor, it is."""
        if self._last_act is None:
            return
        if code != 0:
            self._last_act.cancel()
        await asyncio.wait([self._last_act])

    def _end(self) -> None:
        self._attempts.stop_all()
        self._ending.set()


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def main() -> int:
    """Run an agent: `python -m cordee.control.agent.agent --folder RUN [--node NAME --incarnation N | --replaces N]`."""
    parser = argparse.ArgumentParser(prog="cordee.control.agent.agent")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--node", help="this node's name (default: what the job says)")
    parser.add_argument("--incarnation", type=int, default=1)
    parser.add_argument("--replaces", type=int, default=0, help="in a job: the incarnation that makes room")
    options = parser.parse_args()
    folder = RunFolder(options.folder)
    if options.node:
        return asyncio.run(_serve(folder, options.node, options.incarnation, None))
    claim = claim_here(folder, read_plan(folder), options.replaces)
    if claim is None:
        parser.error("--node is needed where no job says which node this is")
    if claim.incarnation is None:
        say(f"cordee agent {claim.node}: another agent serves this node")
        return 0
    return asyncio.run(_serve(folder, claim.node, claim.incarnation, claim.rescue))


async def _serve(folder: RunFolder, node: str, incarnation: int, rescue: Optional[Rescue]) -> int:
    try:
        agent = Agent(folder, node, incarnation, rescue)
    except CordeeError as error:
        say(f"cordee agent {node}: {error}")
        return error.exit_code
    return await agent.serve()


if __name__ == "__main__":
    sys.exit(main())
