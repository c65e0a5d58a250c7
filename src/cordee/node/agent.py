"""The agent: one process on every node, the only launcher there, on one authenticated connection to the supervisor.

It keeps no truth of its own. What it reports is stored by the supervisor and acknowledged; until then the agent, and the
ranks' channel files behind it, hold it. A supervisor with a newer epoch makes it kill whatever older epochs started, and
without a supervisor its ranks end with their lease.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import traceback
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

from cordee import wire
from cordee.clock import monotonic, unix_s
from cordee.errors import CordeeError, WireError
from cordee.node.allocation import Allocation
from cordee.node.binding import bound
from cordee.node.channels import NoRoom
from cordee.node.container import Container, ContainerDown
from cordee.node.gpus import GpuSampling
from cordee.node.launching import Launch, RankCommand, make_launch
from cordee.node.lease import LEASE_OVER
from cordee.node.machine import Machine
from cordee.node.metrics.side import OfferedMetrics
from cordee.node.output import OutputLog, Tail
from cordee.node.placing import places_of_command
from cordee.node.rank_facts import RankFacts
from cordee.node.ranks import base_environment, rank_command, rank_environment
from cordee.node.rescue import Rescue, claim_node
from cordee.node.setup_lines import read_environment, setup_shell
from cordee.node.shells import Shells
from cordee.node.tasks import STDERR, Task, TaskExit
from cordee.node.telemetry import Telemetry
from cordee.node.uplink import Tell, Uplink
from cordee.node.watchers import Watcher, Watchers
from cordee.node.world import World
from cordee.runs.folder import RunFolder, say
from cordee.starting import module_argv

CORDEE_STREAM = 2
NO_RANK = -1
_SETUP, _CHECKS = "setup", "checks"
_CONNECT_PAUSE_S = 0.02
_CONNECT_SLOWER = 1.3
# A few agents look for a supervisor every second; of thousands, each comes to the run's folder a dozen times in a minute.
_CONNECT_PAUSE_MOST_S, _CONNECT_PAUSE_OF_MANY_S, _MANY_NODES = 1.0, 8.0, 500.0
_STOP_POLL_S = 0.02
_KEEPER_AFTER_S = 3.0
_SUPERVISOR_FIRST_S = 5.0
_SETTLE_S = 2.0
_CLEAR_POLL_S = 0.1
_LEASE_LOOKS = 8


class Agent:
    """One node's agent.

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
        machine: Optional[Machine] = None,
    ) -> None:
        self.folder, self.node, self.incarnation = folder, node, incarnation
        self.machine = machine or Machine()
        self._rescue = rescue
        self.plan: dict[str, Any] = json.loads(folder.plan.read_text())
        self.step: dict[str, Any] = self.plan["steps"][0]
        self.run = self.plan["run"]
        timeouts = self.plan["timeouts"]
        nodes = self.step["request"]["nodes"] + self.step["request"]["spare_nodes"]
        self._connect_most_s = max(_CONNECT_PAUSE_MOST_S, _CONNECT_PAUSE_OF_MANY_S * min(1.0, nodes / _MANY_NODES))
        self.uplink = Uplink(timeouts["lease_s"], timeouts["heartbeat_s"])
        self.ending = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.world: Optional[World] = None
        self.ranks: dict[int, dict[str, Any]] = {}
        self._tails: dict[int, Tail] = {}
        self._watchers = Watchers()
        self.launch: Optional[Launch] = None
        self._full = False
        self._leaseless: Optional[World] = None
        self._clearing: Optional[asyncio.Task[None]] = None
        self._stop_poll: Optional[asyncio.Task[None]] = None
        self._last_act: Optional[asyncio.Task[None]] = None
        self._another = False
        self.machine.take_over(f"{self.run}/{self.node}/")
        self.channels = self.machine.channels(self.run, self.node, self._trouble)
        loop = asyncio.get_running_loop()
        self.log: Optional[OutputLog] = None
        self._logs: list[OutputLog] = []
        self.segment = 0
        self._loop = loop
        self.tasks = self.machine.tasks(
            f"{self.run}/{self.node}/{incarnation}",
            on_output=self._watchers.output,
            on_exit=self._watchers.ended,
            on_start=self._watchers.started,
            kill_s=timeouts["kill_s"],
        )
        self.container = Container(
            self.plan,
            [str(folder.root), str(self.channels.folder)],
            self.tasks,
            self.run_task,
            self._news,
            self._own_output,
            self._container_gone,
        )
        self.base = base_environment(os.environ, self.step["tasks"], self.container.environment)
        self.env = dict(self.base)
        sampling = self.plan["sampling"]
        self.about = RankFacts(self.channels.folder / "ranks.json")
        sharing = self.step["request"]["nodes"] if self.plan["backend"] == "local" else 1
        samplers = self.machine.samplers(node, self._rank_pids, sampling, sharing)
        self.telemetry = Telemetry(node, self.channels, self._rank_pids, sampling, samplers, self.about.facts)
        add, path = self.telemetry.add, self.about.path
        self.gpus = GpuSampling(self, node, sampling, self.step, folder.node_zip, path, add)
        self.offered = OfferedMetrics(self, node, self.plan.get("metrics", {}), folder.node_zip, path, add)
        self.shells = Shells(self.tasks, self.run_task, self.uplink, self._shell_environment, self.container)
        self._handlers: dict[str, Callable[[dict[str, Any], bytes], None]] = {
            "welcome": self._welcome,
            "setup": self._setup,
            "checks": self._checks,
            "port": self._port,
            "clock": self._tell_time,
            "ranks": self._start_ranks,
            "stop": self._stop,
            "signal": self._signal,
            "stop_request": self._stop_request,
            "stop_at": self._stop_at,
            "ack": self._ack,
            "bye": self._bye,
            "clear": self._clear,
            **self.container.handlers,
            **self.shells.handlers,
        }

    async def serve(self) -> int:
        """Connect, obey, reconnect, until told to end or orphaned; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._terminated)
        ticker, watch = asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._watch_lease())
        self.machine.tidy()
        self.gpus.start()
        self.offered.start()
        code = 0
        try:
            while not self.ending.is_set():
                if not await self._connect():
                    code = 1
                    break
                await self._wait_any(self.disconnected, self.ending)
            if self._last_act is not None:
                await self._last_act
        finally:
            ticker.cancel()
            watch.cancel()
            await self._end_launch()
            await self.container.close()
            self.tasks.kill_everything()
            if self.uplink.connection is not None:
                self.uplink.connection.close("the agent ends")
            self._close_logs()
            if code == 0 and not self._another:
                self.channels.remove()
        return code

    async def _connect(self) -> bool:
        """Find a supervisor; False when there was none for the orphan time or the run folder is gone."""
        pause = min(_CONNECT_PAUSE_S * max(1.0, self._connect_most_s), 1.0)
        now = self._loop.time
        deadline = now() + self.plan["timeouts"]["orphan_s"]
        refused = ""
        next_keeper = now() + _KEEPER_AFTER_S
        while not self.ending.is_set():
            try:
                connection = await self.machine.connect(
                    self.folder, self.node, on_message=self._message, on_close=self._closed
                )
                self.disconnected.clear()
                self.uplink.connected(connection)
                self._hello()
                return True
            except (OSError, asyncio.TimeoutError, CordeeError) as error:
                if str(error) != refused:
                    refused = str(error)
                    say(f"cordee agent {self.node}: no supervisor yet: {refused}")
            if now() > deadline or not self.folder.root.is_dir():
                self.tasks.kill_everything()
                say(f"cordee agent {self.node}: no supervisor, giving up: {refused}")
                if self._rescue is not None and self.folder.root.is_dir():
                    await self._rescue.orphaned()
                return False
            if self._rescue is None and now() > next_keeper:
                next_keeper = now() + _KEEPER_AFTER_S
                self._start_keeper()
            spread = (
                zlib.crc32(f"{self.node} {pause}".encode()) % 256 / 255
            )  # nodes that lost one supervisor come at different times
            await asyncio.sleep(pause * (0.7 + 0.6 * spread))
            pause = min(pause * _CONNECT_SLOWER, self._connect_most_s)
        return True

    def _start_keeper(self) -> None:
        """Start a keeper: keeper and supervisor may both be dead. One that is not needed ends itself at once."""
        try:
            self.tasks.spared.add(self.machine.start_keeper(self.folder))
        except OSError as error:
            say(f"cordee agent {self.node}: cannot start a keeper: {error}")

    def _hello(self) -> None:
        world = self.world
        self.uplink.greet(
            {
                "t": "hello",
                "incarnation": self.incarnation,
                **self.machine.identity(),
                "epoch": self.uplink.epoch,
                "attempt": world.attempt if world else 0,
                "living": [rank for rank, report in self.ranks.items() if report["status"] != "ended"],
            }
        )

    def _news(self, message: dict[str, Any], body: bytes = b"") -> None:
        """Tell the supervisor what it must know; where too much waits to be told, this agent cannot go on."""
        try:
            self.uplink.news(message, body)
        except CordeeError as error:
            say(f"cordee agent {self.node}: gives up: {error}")
            self._end()

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        if connection is not self.uplink.connection:
            return
        kind = message.get("t", "")
        if kind not in ("welcome", "bye") and not self.uplink.take(message, body):
            return
        handler = self._handlers.get(kind)
        if handler is not None:
            try:
                handler(message, body)
            except WireError:
                raise
            except Exception as error:  # whatever it is: the supervisor would wait for an answer, and nobody know why
                self._trouble(f"{kind!r}, which the supervisor asked for, failed: {_words(error)}")
        self.shells.go_on()

    def _trouble(self, text: str) -> None:
        """Say in this agent's log what is wrong here, and have it become a finding of the run."""
        if self.telemetry.trouble(text):
            say(f"cordee agent {self.node}: {text}")
            if sys.exc_info()[0] is not None:
                traceback.print_exc()

    def _closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        if connection is self.uplink.connection:
            self.uplink.closed()
            self.telemetry.connected = False
            self.disconnected.set()

    def _welcome(self, message: dict[str, Any], body: bytes) -> None:
        if self.uplink.welcome(message):
            self._forget_ranks()
            for group in (_SETUP, _CHECKS):
                self.tasks.stop(group, 0.0)
        if self.log is None or self.segment != message["segment"]:
            self._open_log(message["segment"])
        self.telemetry.resend(self.uplink.say)

    def _clear(self, message: dict[str, Any], body: bytes) -> None:
        """End what earlier attempts left here, and say when nothing of it runs any more."""
        self._forget_ranks()
        self._clearing = asyncio.ensure_future(self._tell_when_clear(self.uplink.teller()))

    async def _tell_when_clear(self, tell: Tell) -> None:
        while self.machine.ranks_of(self.tasks.owner):
            await asyncio.sleep(_CLEAR_POLL_S)
        tell({"t": "cleared"})

    async def _watch_lease(self) -> None:
        """Show the supervisor several times in a lease that the agent lives; end the ranks when the lease is over."""
        timeouts = self.plan["timeouts"]
        pause = min(timeouts["heartbeat_s"], timeouts["lease_s"] / _LEASE_LOOKS)
        while True:
            await asyncio.sleep(pause)
            try:
                self.uplink.beat()
                if self.uplink.lease_is_over():
                    self._end_with_lease()
            except Exception as error:  # whatever it is: ranks without a lease must not run on
                self._trouble(f"the lease of this node's ranks is not watched well: {_words(error)}")

    def _end_with_lease(self) -> None:
        if self.launch is None or self.world is None or self._leaseless is self.world:
            return
        self._leaseless = self.world
        if any(report["status"] != "ended" for report in self.ranks.values()):
            say(f"cordee agent {self.node}: ends the ranks of attempt {self.world.attempt}: {self._no_lease}")
            self.launch.stop(0.0)

    @property
    def _no_lease(self) -> str:
        return f"nothing was heard of the supervisor for {self.uplink.lease.lease_s:g} s"

    def _open_log(self, segment: int) -> None:
        if self.log is not None:
            self.log.end()
        self.segment = segment
        path = self.folder.logs / f"{self.node}-{segment}.log"
        self.log = self.machine.log(path, self._output_pressure)
        self._logs.append(self.log)

    def _close_logs(self) -> None:
        for log in self._logs:
            if not log.close():
                say(f"cordee agent {self.node}: {log.dropped_bytes} bytes of output could not be written to its log")

    def _output_pressure(self, full: bool) -> None:
        self._loop.call_soon_threadsafe(self._pause_output, full)

    def _pause_output(self, paused: bool) -> None:
        self._full = paused
        self.tasks.pause_output(paused)
        if self.launch is not None:
            self.launch.pause_output(paused)

    def _forget_ranks(self) -> None:
        if self.world is not None and self.launch is not None:
            self.launch.abandon()
            for rank in self.ranks:
                self.channels.close(self.world.attempt, rank)
            self.ranks, self.world, self.launch = {}, None, None

    async def _end_launch(self) -> None:
        if self.launch is not None:
            await self.launch.settle(_SETTLE_S)
        self._forget_ranks()

    def _setup(self, message: dict[str, Any], body: bytes) -> None:
        lines, answer = self.step["tasks"]["setup"], {"t": "setup_done", "id": message["id"]}
        tell = self.uplink.teller()
        try:
            self.channels.renew()
        except NoRoom as error:
            tell({**answer, "status": "fail", "text": error.text, "seconds": 0.0})
            return
        output = self.channels.folder / "setup-environment"

        def finished(ended: TaskExit) -> None:
            text = ended.text
            if ended.code == 0:
                try:
                    self.env = read_environment(output)
                    output.unlink()
                except OSError as error:
                    text = f"the set-up's environment cannot be read: {error}"
            else:
                text = text or self._message_of(NO_RANK) or f"set-up ended: {ended.reason}"
            status = "pass" if ended.code == 0 and not text else "fail"
            tell({**answer, "status": status, "text": text, "seconds": ended.seconds})

        self._tails[NO_RANK] = Tail()
        env = dict(self.base, CORDEE_SETUP_NODE=self.node)
        try:
            shell = self.container.inside(setup_shell(lines, output, self.container.environment is not None))
        except ContainerDown as error:
            tell({**answer, "status": "fail", "text": error.text, "seconds": 0.0})
            return
        task = Task(
            f"setup-{self.uplink.epoch}-{message['id']}",
            shell,
            env,
            self.container.cwd,
            deadline_s=message["deadline_s"],
            group=_SETUP,
            keeps_children=True,
        )
        self.run_task(task, finished, output=self._own_output)

    def _own_output(self, stream: int, data: bytes) -> None:
        """Keep what set-up lines and checks print: it belongs to no rank."""
        if NO_RANK in self._tails:
            self._tails[NO_RANK].add(stream, data)
        if self.log is not None:
            self.log.write(NO_RANK, stream, 0, data)

    def _checks(self, message: dict[str, Any], body: bytes) -> None:
        env = dict(os.environ, PYTHONPATH=str(self.folder.node_zip), CORDEE_NODE=self.node)
        env_of_ranks = dict(self.env, CORDEE_NODE=self.node)
        request = dict(message["request"], env=env_of_ranks, run_folder=str(self.folder.root))
        request.update(workdir=self.container.workdir, inside=self.container.words(), asked_at=monotonic())
        argv = tuple(module_argv("cordee.checks"))
        task = Task(
            message["id"],
            argv,
            env,
            str(self.folder.root),
            deadline_s=message["deadline_s"],
            group=_CHECKS,
            stdin=json.dumps(request).encode(),
        )

        tell = self.uplink.teller()

        def printed(stream: int, data: bytes) -> None:
            if stream == STDERR:
                self._own_output(stream, data)
            else:
                tell({"t": "checks_output", "id": task.id}, data)

        def finished(ended: TaskExit) -> None:
            done = {"t": "checks_done", "id": message["id"], "code": ended.code, "signal": ended.signal}
            tell({**done, "reason": ended.reason, "text": ended.text})

        self.run_task(task, finished, output=printed)

    def _port(self, message: dict[str, Any], body: bytes) -> None:
        ports: list[int] = []
        while len(ports) < message["count"]:
            try:
                port = wire.pick_port(message["host"])
            except (OSError, CordeeError) as error:
                self._news({"t": "port", "id": message["id"], "ports": [], "text": str(error)})
                return
            if port not in ports:
                ports.append(port)
        self._news({"t": "port", "id": message["id"], "ports": ports, "text": ""})

    def _tell_time(self, message: dict[str, Any], body: bytes) -> None:
        self._news({"t": "clock", "id": message["id"], "unix_s": unix_s()})

    # What a launch needs and says: see LaunchHost.

    @property
    def meeting_place(self) -> Path:
        return self.channels.folder

    def run_task(
        self,
        task: Task,
        ended: Callable[[TaskExit], None],
        *,
        started: Optional[Callable[[int], None]] = None,
        output: Optional[Callable[[int, bytes], None]] = None,
    ) -> None:
        if self._watchers.add(task, Watcher(ended, started, output)):
            self.tasks.start(task)
        else:
            ended(TaskExit(task.id, None, None, "not_started", 0.0, f"a task {task.id!r} runs already"))

    def rank_started(self, world: World, rank: int, pid: int) -> None:
        if self.world is world:
            self.ranks[rank] = {"status": "running", "pid": pid}
            self._news({"t": "rank_started", "attempt": world.attempt, "rank": rank, "pid": pid})

    def rank_output(self, world: World, rank: int, stream: int, data: bytes) -> None:
        if self.world is world and rank in self._tails:
            self._tails[rank].add(stream, data)
        if self.log is not None:
            self.log.write(rank, stream, world.attempt, data)

    def rank_ended(self, world: World, rank: int, ended: TaskExit) -> None:
        if self._leaseless is world and ended.reason == "stopped":
            ended = replace(ended, reason=LEASE_OVER, text=self._no_lease)
        ended = self.container.explained(ended, self._tails.get(rank))
        if ended.text and self.log is not None:
            self.log.write(rank, CORDEE_STREAM, world.attempt, ended.text.encode() + b"\n")
        self._send_telemetry()
        self.channels.close(world.attempt, rank)
        report = {
            "status": "ended",
            "code": ended.code,
            "signal": ended.signal,
            "reason": ended.reason,
            "seconds": round(ended.seconds, 3),
            "message": ended.text or self._message_of(rank, ended.signal),
        }
        if self.world is world:
            self.ranks[rank] = report
        self._news({"t": "rank_exit", "attempt": world.attempt, "rank": rank, **report})

    def _start_ranks(self, message: dict[str, Any], body: bytes) -> None:
        self._forget_ranks()
        world = self.world = World.from_message(message, body)
        for rank in world.local_ranks:
            self._tails[rank] = Tail()
            self.ranks[rank] = {"status": "starting"}
        try:
            late = self.uplink.lease_is_over()
            down = self._no_lease if late else self._launch_ranks(world, message["launch"])
        except Exception as error:  # whatever it is: the attempt would wait for ranks that never start
            say(f"cordee agent {self.node}: the ranks of attempt {world.attempt} cannot be started:")
            traceback.print_exc()
            down, reason = _words(error), "not_started"
        else:
            reason = LEASE_OVER if late else "exited"
        if down:
            for rank in world.local_ranks:
                if self.ranks[rank]["status"] == "starting":
                    self.rank_ended(world, rank, TaskExit(f"rank-{rank}", None, None, reason, 0.0, down))

    def _launch_ranks(self, world: World, kind: str) -> str:
        """Start the ranks, or return why their container is down.

        Raises:
            NoRoom: for what a rank needs of its agent.
        """
        self.channels.renew()
        self.launch = make_launch(kind, self, self.plan, self.step, world)
        self.launch.pause_output(self._full)
        ranks = []
        outside = base_environment(os.environ, {"env": {}}) if self.container.environment is not None else None
        try:
            argv, down = self.container.rank(rank_command(self.step, world)), ""
        except ContainerDown as error:
            argv, down = (), error.text
        for rank in world.local_ranks:
            channel = self.channels.create(world.attempt, rank)
            env = rank_environment(self.env, self.plan, self.step, world, rank, channel)
            env = self.offered.environment(env, rank)
            ranks.append(RankCommand(rank, argv, env, self.container.cwd, outside))
        ranks = bound(ranks, self.step)
        self.about.begin(world, ranks)
        self.channels.say_first(places_of_command(world, rank_command(self.step, world), unix_s()))
        if not down:
            self.launch.start(ranks)
        return down

    def _container_gone(self) -> None:
        """The container has ended by itself: its ranks must not run on in what is left of it."""
        if self.launch is not None:
            self.launch.signal(signal.SIGKILL)

    def _message_of(self, rank: int, signal: Optional[str] = None) -> Optional[str]:
        tail = self._tails.get(rank)
        return tail.message(signal) if tail else None

    def _stop(self, message: dict[str, Any], body: bytes) -> None:
        if self.launch is not None and message["group"] == self.launch.group:
            self.launch.stop(message["grace_s"])

    def _signal(self, message: dict[str, Any], body: bytes) -> None:
        if self.launch is not None and message["group"] == self.launch.group:
            self.launch.signal(getattr(signal, "SIG" + message["signal"]))

    def _stop_request(self, message: dict[str, Any], body: bytes) -> None:
        attempt = message["attempt"]
        self.channels.request_stop(attempt)
        if self._stop_poll is not None:
            self._stop_poll.cancel()
        self._stop_poll = asyncio.ensure_future(self._report_stop_answers(attempt))

    async def _report_stop_answers(self, attempt: int) -> None:
        last: Optional[dict[int, Optional[int]]] = None
        while self.world is not None and self.world.attempt == attempt:
            answers = self.channels.stop_answers(attempt)
            if answers != last:
                last = answers
                self._news({"t": "stop_answers", "attempt": attempt, "answers": list(answers.items())})
            await asyncio.sleep(_STOP_POLL_S)

    def _stop_at(self, message: dict[str, Any], body: bytes) -> None:
        self.channels.stop_at(message["attempt"], message["step"])
        if self._stop_poll is not None:
            self._stop_poll.cancel()
            self._stop_poll = None

    def _ack(self, message: dict[str, Any], body: bytes) -> None:
        if self.telemetry.acknowledge(message["sequence"]):
            self._send_telemetry()

    def _shell_environment(self) -> dict[str, str]:
        return dict(self.env, CORDEE_RUN_ID=self.run, CORDEE_RUN_DIR=str(self.folder.root), CORDEE_NODE=self.node)

    def _bye(self, message: dict[str, Any], body: bytes) -> None:
        self._another = bool(message.get("another"))
        self.ending.set()

    def _terminated(self) -> None:
        if self._rescue is None:
            self._end()
        elif self._last_act is None:
            self._last_act = asyncio.ensure_future(self._end_with_the_job(self._rescue))

    async def _end_with_the_job(self, rescue: Rescue) -> None:
        """Slurm ends the job: the supervisor, told the same, has the first word on what becomes of the ranks."""
        await rescue.terminated()
        try:
            await asyncio.wait_for(self.ending.wait(), _SUPERVISOR_FIRST_S)
        except asyncio.TimeoutError:
            self._end()

    def _end(self) -> None:
        if self.launch is not None:
            self.launch.stop(0.0)
        self.ending.set()

    def _rank_pids(self) -> dict[int, int]:
        return self.launch.pids() if self.launch is not None else {}

    async def _tick(self) -> None:
        interval = self.plan["sampling"]["interval_s"]
        while True:
            await asyncio.sleep(interval - unix_s() % interval)
            for work in (self.channels.touch, self._tell_samplers, self._sample, self._send_telemetry):
                try:
                    work()
                except Exception as error:  # whatever it is: an agent that says nothing any more is taken for dead
                    self._trouble(f"what this node measures is not complete: {_words(error)}")

    def _tell_samplers(self) -> None:
        self.about.write(self._rank_pids())

    def _sample(self) -> None:
        self.telemetry.sample(self.world.attempt if self.world else 0)

    def _send_telemetry(self) -> None:
        dropped, queued = sum(log.dropped_bytes for log in self._logs), sum(log.queued_bytes for log in self._logs)
        log = self.log.written if self.log is not None else None
        self.telemetry.send(self.uplink.say, log, dropped_log_bytes=dropped, queued_log_bytes=queued)

    async def _wait_any(self, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


def _words(error: Exception) -> str:
    """Return what an error says: alone where it was made for people, with its name where it was not."""
    return error.text if isinstance(error, CordeeError) else f"{type(error).__name__}: {error}"


def main() -> int:
    """Run an agent: `python -m cordee.node.agent --folder RUN [--node NAME --incarnation N | --replaces N]`."""
    parser = argparse.ArgumentParser(prog="cordee.node.agent")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--node", help="this node's name (default: Slurm's)")
    parser.add_argument("--incarnation", type=int, default=1)
    parser.add_argument("--replaces", type=int, default=0, help="in a Slurm job: the incarnation that makes room")
    options = parser.parse_args()
    folder = RunFolder(options.folder)
    here = None if options.node else Allocation.here()
    if here is None:
        if not options.node:
            parser.error("--node is needed outside of a Slurm job")
        return asyncio.run(_serve(folder, options.node, options.incarnation, None))
    incarnation = claim_node(folder, here, options.replaces)
    if incarnation is None:
        say(f"cordee agent {here.node}: another agent serves this node")
        return 0
    plan = json.loads(folder.plan.read_text())
    return asyncio.run(_serve(folder, here.node, incarnation, Rescue(folder, plan, here)))


async def _serve(folder: RunFolder, node: str, incarnation: int, rescue: Optional[Rescue]) -> int:
    try:
        agent = Agent(folder, node, incarnation, rescue)
    except CordeeError as error:
        say(f"cordee agent {node}: {error}")
        return error.exit_code
    return await agent.serve()


if __name__ == "__main__":
    sys.exit(main())
