"""The machines of a simulation: what an agent's Machine gives it, and the processes that it starts there."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee import wire
from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.ranks import channels
from cordee.control.agent.ranks.data_positions import DataPositions
from cordee.core.words import signal_name
from cordee.machine.slots import AllocatableGpu, Core, NodeSlots, SlotAllocator
from cordee.machine.tasks.task import STDERR, STDOUT, Task, TaskExit
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunSampling
from cordee.telemetry.node.blocklog import encode_events
from cordee.wire.messages import RankFinding, RankPlace
from support.simulation.loop import VirtualProcess
from support.simulation.surroundings import WorldPort

_READ_EVENTS, _CORES, _GPUS = 200, 8, 8


class Host:
    """One machine of the allocation.

    Attributes:
        up: whether it has power.
        stuck_s: how long what is killed here is held by the kernel.
        full: whether its memory has no room for what ranks share with their agent.
        sees_former: whether it sees the run's folder as it was before the newest supervisor came.
        agents: all that ran here, the newest last.
        children: what agents started, by pid.
    """

    def __init__(self, name: str) -> None:
        self.name, self.up, self.stuck_s = name, True, 0.0
        self.agents: list[VirtualProcess] = []
        self.children: dict[int, VirtualProcess] = {}
        self.clock_s = 0.0
        self.full = self.sees_former = False

    @property
    def agent(self) -> VirtualProcess | None:
        """The newest agent's process."""
        return self.agents[-1] if self.agents else None


@dataclass
class _Running:
    task: Task
    process: VirtualProcess
    started: float
    reason: str = "exited"
    ended: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class VirtualTasks:
    """Starts virtual processes with the manners of `TaskRunner`.

    Args:
        world: knows what a task does.
        host: where they run.
        handlers: as TaskRunner has them.
    """

    def __init__(self, world: WorldPort, host: Host, owner: str, **handlers: Any) -> None:
        self._world, self._host, self.owner = world, host, owner
        self._output, self._exit = handlers["on_output"], handlers["on_exit"]
        self._start, self.kill_s = handlers["on_start"], handlers["kill_s"]
        self._running: dict[str, _Running] = {}
        self._loop = world.loop
        self.output_paused = False
        self.spared: set[int] = set()
        agent = VirtualProcess.here()
        assert agent is not None
        self._agent = agent
        agent.at_end.append(self._orphaned)

    def start(self, task: Task) -> None:
        """See TaskRunner."""
        if task.id in self._running:
            raise ValueError(f"a task {task.id!r} runs already")
        child = VirtualChild(self._world, self._host, task, lambda stream, data: self._said(task, stream, data))
        world, agent = self._world, self._agent

        def ended(code: int | None, number: int | None) -> None:
            world.child_ended(child, code, number)
            self._loop.call_soon(self._reap, task.id, code, number, context=agent.context)

        child.process = VirtualProcess(self._loop, f"{self._host.name}:{task.id}", child.run, ended)
        self._host.children[child.process.pid] = child.process
        self._running[task.id] = entry = _Running(task, child.process, self._loop.now)
        if task.deadline_s is not None:
            entry.timers.append(self._loop.call_later(task.deadline_s, self._end, [entry], "deadline", 0.0))
        world.child_started(child)
        self._start(task, child.process.pid)

    def running(self, group: str | None = None) -> list[str]:
        """See TaskRunner."""
        return [name for name, entry in self._running.items() if group in (None, entry.task.group)]

    def pid(self, task_id: str) -> int | None:
        """See TaskRunner."""
        entry = self._running.get(task_id)
        return entry.process.pid if entry else None

    def signal(self, group: str, number: int) -> None:
        """See TaskRunner."""
        for entry in self._of(group):
            self._world.signal(self._host, entry.process, number)

    def stop(self, group: str, grace_s: float) -> None:
        """See TaskRunner."""
        self._end(self._of(group), "stopped", grace_s)

    def close_stdin(self, task_id: str) -> None:
        """See TaskRunner."""

    write = hang_up = resize = pause_one = close_stdin

    def pause_output(self, paused: bool) -> None:
        """See TaskRunner."""
        self.output_paused = paused

    def kill_everything(self) -> None:
        """See TaskRunner."""
        self._world.sweep(self._host)

    def _of(self, group: str) -> list[_Running]:
        return [entry for entry in self._running.values() if entry.task.group == group]

    def _said(self, task: Task, stream: int, data: bytes) -> None:
        self._loop.call_soon(self._pass_on, task, stream, data, context=self._agent.context)

    def _pass_on(self, task: Task, stream: int, data: bytes) -> None:
        if task.id in self._running:
            self._output(task, stream, data)

    def _end(self, entries: list[_Running], reason: str, grace_s: float) -> None:
        for entry in entries:
            if entry.reason == "exited" and not entry.ended:
                entry.reason = reason
        if grace_s <= 0:
            self._kill(entries)
            return
        for entry in entries:
            self._world.signal(self._host, entry.process, signal.SIGTERM)
        self._loop.call_later(grace_s, self._kill, entries)

    def _kill(self, entries: list[_Running]) -> None:
        for entry in entries:
            if not entry.ended:
                self._world.signal(self._host, entry.process, signal.SIGKILL)
                entry.timers.append(self._loop.call_later(self.kill_s, self._give_up, entry))

    def _give_up(self, entry: _Running) -> None:
        if not entry.ended and entry.process.alive:
            entry.reason = "stuck"
            self._finish(entry, None, None)

    def _reap(self, name: str, code: int | None, number: int | None) -> None:
        entry = self._running.get(name)
        if entry is not None and not entry.process.alive:
            self._finish(entry, code, number)

    def _finish(self, entry: _Running, code: int | None, number: int | None) -> None:
        if entry.ended:
            return
        entry.ended = True
        for timer in entry.timers:
            timer.cancel()
        del self._running[entry.task.id]
        name = None if number is None else signal_name(number)
        self._exit(entry.task, TaskExit(entry.task.id, code, name, entry.reason, self._loop.now - entry.started))

    def _orphaned(self) -> None:
        """The kernel kills the children of an agent that has ended."""
        for entry in list(self._running.values()):
            self._world.signal(self._host, entry.process, signal.SIGKILL)


class VirtualChild:
    """A virtual process that an agent starts: a rank, set-up lines, or checks; what it does is told by its Task."""

    def __init__(self, world: WorldPort, host: Host, task: Task, say: Callable[[int, bytes], None]) -> None:
        self.world, self.host, self.task, self.say = world, host, task, say
        self.process: VirtualProcess
        self.is_rank = task.id.startswith("rank-")
        self.attempt, self.rank = map(int, task.id.split("-")[1:]) if self.is_rank else (0, -1)
        self.epoch = int(task.env.get("CORDEE_EPOCH", 0)) if self.is_rank else 0
        self.resumed = int(task.env.get("CORDEE_RESUME_FROM", "").rpartition("-")[2] or 0)
        self.channel = world.channels.get(task.env.get("CORDEE_CHANNEL", ""))

    def run(self) -> Coroutine[Any, Any, int]:
        """Return what it does."""
        if self.is_rank:
            return self._train()
        return self._check() if self.task.group == "checks" else self._set_up()

    async def _set_up(self) -> int:
        await asyncio.sleep(self.world.script.setup_s)
        (self.world.memory(self.host) / "setup-environment").write_bytes(b"PATH=/bin\0cordee_end=\0")
        return 0

    async def _check(self) -> int:
        await asyncio.sleep(self.world.script.checks_s)
        passed = {"status": "pass", "value": 1.0, "unit": "", "threshold": 0.0, "evidence": "", "seconds": 0.1}
        more: dict[str, Any] = {
            "version": 1,
            "required": True,
            "cause": None,
            "reference": None,
            "facts": {},
            "compare": [],
            "rule": None,
        }
        for check in json.loads(self.task.stdin or b"{}")["checks"]:
            named = {"check": check["check"], "name": check.get("name") or check["check"]}
            self.say(STDOUT, json.dumps({**named, **passed, **more}).encode() + b"\n")
        return 0

    async def _train(self) -> int:
        """Step with the others: who loses one fails soon, who is asked to stop does so at the step that is agreed."""
        script, group, channel = self.world.script, self.world.training.group(self), self.channel
        assert channel is not None
        step = self.resumed
        await asyncio.sleep(script.start_s)
        while len(group.there) < group.size and not group.broken:
            await asyncio.sleep(0.1)
        stop: int | None = None
        while step < script.steps and (stop is None or step < stop):
            await asyncio.sleep(script.step_s)
            if group.broken:
                await asyncio.sleep(script.notice_s)
                self.say(STDERR, b"RuntimeError: Connection reset by peer\n")
                return 1
            if self.world.training.fails(self, step + 1):
                self.say(STDERR, b"ValueError: a bug of the script\n")
                return 1
            step += 1
            channel.log(step)
            if self.rank == 0 and step % script.every == 0:
                await self.world.training.save(self, step)
            while channel.asked and script.stopping and stop is None and not group.broken:
                channel.answer = step
                await asyncio.sleep(0.02)
                stop = channel.stop_step
        if self.rank == 0:
            await self.world.training.save(self, step)
        return 0


class VirtualChannel:
    """What a rank and its agent share; it outlives both."""

    def __init__(self, attempt: int, rank: int) -> None:
        self.attempt, self.rank = attempt, rank
        self.logged: list[int] = []
        self.read, self.stored = 0, 0
        self.asked = self.closed = False
        self.answer: int | None = None
        self.stop_step: int | None = None

    def log(self, step: int) -> None:
        """Say a step."""
        self.logged.append(step)


class Channels:
    """The channels of a node's ranks with the manners of `RankChannels`."""

    def __init__(self, world: WorldPort, host: Host) -> None:
        self._world, self._host = world, host
        self._event_bytes = world.script.event_bytes
        self._name = "step".ljust(self._event_bytes, "_")
        self.folder = world.memory(host)
        self.data = DataPositions()
        self.found: list[RankFinding] = []
        self.places: list[RankPlace] = []
        self.capped_values: list[tuple[int, int]] = []
        self._open = {name: channel for name, channel in world.channels.items() if name.startswith(f"{host.name}/")}
        for channel in self._open.values():
            channel.read, channel.closed = channel.stored, True

    def renew(self) -> None:
        """See RankChannels."""

    touch = remove = renew
    drained = False

    def create(self, attempt: int, rank: int) -> str:
        """See RankChannels."""
        if self._host.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        name = f"{self._host.name}/{attempt}-{rank}"
        self._world.channels[name] = self._open[name] = VirtualChannel(attempt, rank)
        return name

    def reserve(self, name: str, size: int) -> Path:
        """See RankChannels."""
        return self.folder / name

    def close(self, attempt: int, rank: int) -> None:
        """See RankChannels."""
        channel = self._open.get(f"{self._host.name}/{attempt}-{rank}")
        if channel is not None:
            channel.closed = True

    def say_first(self, records: bytes) -> None:
        """See RankChannels."""

    def read(self) -> tuple[bytes, dict[str, int], dict[int, int]]:
        """See RankChannels."""
        records, cursors, steps = [], {}, {}
        left = channels.READ_BYTES
        for channel in self._open.values():
            if channel.logged and not channel.closed:
                steps[channel.rank] = channel.logged[-1]
            most = min(_READ_EVENTS, -(-left // self._event_bytes)) if left > 0 else 0
            new = channel.logged[channel.read : channel.read + most]
            if new:
                left -= len(new) * self._event_bytes
                events = [(step, self._world.clocks.time(), None, {self._name: float(step)}) for step in new]
                records.append(encode_events(self._host.name, channel.rank, channel.attempt, 0, events))
                channel.read += len(new)
                cursors[f"{channel.attempt}-{channel.rank}"] = channel.read
        return b"".join(records), cursors, steps

    def steps(self, attempt: int) -> dict[int, int]:
        """See RankChannels."""
        return {channel.rank: channel.logged[-1] for channel in self._of(attempt) if channel.logged}

    @property
    def unread_bytes(self) -> int:
        """See RankChannels."""
        return sum(self._event_bytes * (len(channel.logged) - channel.read) for channel in self._open.values())

    @property
    def total(self) -> int:
        """See RankChannels."""
        return self._world.script.steps

    def acknowledge(self, cursors: dict[str, int]) -> None:
        """See RankChannels."""
        for name, cursor in cursors.items():
            channel = self._open.get(f"{self._host.name}/{name}")
            if channel is not None:
                channel.stored = max(channel.stored, cursor)

    def request_stop(self, attempt: int) -> None:
        """See RankChannels."""
        for channel in self._of(attempt):
            channel.asked = True

    def stop_answers(self, attempt: int) -> dict[int, int | None]:
        """See RankChannels."""
        if not self._world.script.stopping:
            return {}
        return {channel.rank: channel.answer for channel in self._of(attempt)}

    def stop_at(self, attempt: int, step: int) -> None:
        """See RankChannels."""
        for channel in self._of(attempt):
            channel.stop_step = step

    def _of(self, attempt: int) -> list[VirtualChannel]:
        return [channel for channel in self._open.values() if channel.attempt == attempt and not channel.closed]


class _NoSampler:
    """Samples nothing."""

    def sample(self) -> list[float]:
        return []

    devices = metrics = sample


class _Log:
    """Takes output, and forgets it."""

    dropped_bytes = queued_bytes = 0
    written = ("output.log", 0)

    def write(self, *frame: Any) -> None:
        """See OutputLog."""

    def end(self) -> None:
        """See OutputLog."""

    def close(self) -> bool:
        """See OutputLog."""
        return True


class SimulatedMachine(NodeTasks):
    """The machine of one agent; see Machine.

    Args:
        world: that it stands in.
        host: which it is.
    """

    def __init__(self, world: WorldPort, host: Host) -> None:
        self._world, self._host = world, host

    def take_over(self, owner: str) -> None:
        """Kill what earlier agents left."""
        self._world.sweep(self._host)

    def ranks_of(self, owner: str, kept: Collection[str] = ()) -> list[Any]:
        """Return the ranks that live here."""
        return [process for process in self._host.children.values() if ":rank-" in process.name and process.alive]

    def freeze(self, owner: str, mains: Collection[int]) -> list[int]:
        """Pause the ranks that live here."""
        frozen = [process for process in self.ranks_of(owner) if not process.paused]
        for process in frozen:
            process.pause()
        return [process.pid for process in frozen]

    def thaw(self, frozen: Sequence[int]) -> None:
        """Let them go on."""
        for process in map(self._host.children.get, frozen):
            if process is not None:
                process.resume()

    def tidy(self) -> None:
        """Nothing is left of others here."""

    def identity(self) -> dict[str, Any]:
        """Return the process that runs now."""
        process = VirtualProcess.here()
        assert process is not None
        return {"pid": process.pid, "start_ticks": 0, "host": self._host.name, "python": "3.11"}

    def tasks(self, owner: str, **handlers: Any) -> Any:
        """Return what starts virtual processes."""
        return VirtualTasks(self._world, self._host, owner, **handlers)

    def slots(self) -> SlotAllocator:
        """Return a node with a GPU for each rank: an attempt that leaves them to nobody cannot be followed by another."""
        cores = tuple(Core(frozenset({cpu}), 0) for cpu in range(_CORES))
        gpus = tuple(
            AllocatableGpu(f"0000:{number}0:00", f"GPU-{number}", frozenset(range(_CORES))) for number in range(_GPUS)
        )
        return SlotAllocator(lambda: NodeSlots(cores, gpus))

    def channels(self, run: str, node: str, tell: Callable[[str], None], root: Path) -> Any:
        """Return the channels of this node."""
        return Channels(self._world, self._host)

    def samplers(self, node: str, pids: Any, sampling: RunSampling, sharing: int) -> Any:
        """Return what samples nothing."""
        return _NoSampler(), _NoSampler()

    def log(self, path: Path, pressure: Callable[[bool], None], keep_bytes: int | None) -> Any:
        """Return what takes output."""
        return _Log()

    async def connect(self, folder: RunFolder, node: str, **handlers: Any) -> Any:
        """Connect in memory."""
        await self._world.disk.answers()
        place = wire.read_rendezvous(folder.rendezvous)
        if self._host.sees_former:
            place = self._world.network.before(place)
        return await self._world.network.connect(place, node, **handlers)

    async def has(self, folder: RunFolder) -> bool:
        """Return whether the run's folder is there."""
        await self._world.disk.answers()
        return folder.root.is_dir()

    def start_keeper(self, folder: RunFolder) -> int:
        """There is one always."""
        return 0
