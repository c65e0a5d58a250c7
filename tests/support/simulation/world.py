"""One run in a simulated allocation: its machines, what its ranks do, and whoever starts what has died."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import os
import random
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cordee import wire
from cordee.backends.slurm import BACKEND
from cordee.control.agent.agent import Agent
from cordee.control.agent.companions import PORT as COMPANION
from cordee.control.supervisor.allocation import ORPHANED, Allocation
from cordee.control.supervisor.disks.lanes import Lanes
from cordee.control.supervisor.supervisor import Supervisor
from cordee.core.clock import clocks_of
from cordee.core.errors import CordeeError, OwnershipError
from cordee.machine.processes.module_command import APART
from cordee.runs.disk import may_pass
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, client_journal
from cordee.runs.plan import read_plan
from support.made.journal import made_plan
from support.simulation.disk import SimulatedDisk, VirtualLane
from support.simulation.journal_watch import journals_watched
from support.simulation.loop import VirtualClocks, VirtualLoop, VirtualProcess
from support.simulation.machine import Host, SimulatedMachine, VirtualChannel, VirtualChild
from support.simulation.network import VirtualNetwork
from support.simulation.rules import Rules
from support.simulation.sealing import Sealers
from support.simulation.surroundings import RunScript
from support.simulation.training import SimulatedTraining

_RESTART_S = 0.5
_REFUSED_S = 5.0
_NODE_FAILS_S = 120.0
_MOST_STARTS, _STARTS_WINDOW_S = 10, 60.0
_HUNG_S = 60.0
_QUEUE_S = 5.0
_AGENT_START_S = 0.5
_ASK_S = 0.5
_KILL_WAIT_S = 30.0
_SRUN_S = 1.0


class SimulatedPlace(Allocation):
    """The allocation as the supervisor sees it; see Allocation."""

    chains = True

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world.folder, read_plan(world.folder))
        self._world = world

    @property
    def allocation(self) -> dict[str, Any]:
        return {"job": "1", "requeues": self._world.requeues}

    def identity(self) -> dict[str, Any]:
        process = VirtualProcess.here()
        assert process is not None
        about = {"pid": process.pid, "start_ticks": 0, "host": self._world.names[0], "boot": "simulated"}
        return {**about, **self.allocation, "began": None, "node": self._world.names[0], "partition": None}

    def age_s(self) -> float:
        return self._world.loop.now - self._world.allocated_at

    def node_names(self) -> list[str]:
        return self._world.names

    def address(self) -> str:
        return "127.0.0.1"

    def address_of(self, connection: wire.Connection) -> str:
        return "127.0.0.1"

    async def listen(self, token: bytes, epoch: int, on_connect: Callable[[wire.Connection], None]) -> wire.Server:
        return cast(wire.Server, self._world.network.listen(token, epoch, on_connect))

    def owner_alive(self, owner: dict[str, Any]) -> bool:
        return not self._world.blind and self._world.loop.lives(owner["pid"])

    def fate(self) -> str:
        self._world.rules.orders.rpcs += 1
        return self._world.fate

    def let_go(self, ended: bool) -> None:
        self._world.given_back = ended

    def go_on(self, how: str) -> dict[str, Any]:
        self._world.rules.orders.rpcs += 1
        self._world.requeue()
        return {"job": "1", "how": how}

    def replace_agent(self, node: str, incarnation: int) -> None:
        self._world.rules.orders.rpcs += 1
        if self._world.forgetful:
            self._world.forgetful -= 1
            return
        self._world.loop.after(_SRUN_S, self._world.replace_agent, node, incarnation, self._world.requeues)

    def agent_gone(self, node: str, incarnation: int) -> bool:
        agents = self._world.hosts[node].agents
        on_this_host = node == self._world.names[0]
        return len(agents) > incarnation or (on_this_host and bool(agents) and not agents[-1].alive)

    def beat(self) -> None:
        self._world.beaten_at = self._world.loop.now

    def requests(self, owner: Callable[[], str]) -> list[dict[str, Any]]:
        if not self._world.requests or self._world.disk.troubles or owner() != "ours":
            return []
        found, self._world.requests = self._world.requests, []
        return found


class _Rescue:
    """Has the job requeued when an agent finds no supervisor any more; see `cordee.backends.slurm.node.rescue.SlurmRescue`."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world, self._requeues = world, world.requeues

    async def orphaned(self) -> None:
        if self._requeues == self._world.requeues and not self._world.rules.ended:
            self._world.requeue()

    async def terminated(self, led: Callable[[], bool]) -> None:
        """Ask for as long as this process lives, unless it is led on; the supervisor may be told the same."""
        while self._world.fate == "running" and not led():
            await asyncio.sleep(_ASK_S)
        if self._world.fate == "killed":
            await self.orphaned()

    async def unheard(self, led: Callable[[], bool]) -> bool:
        """Nothing is said to an agent that has not begun."""
        return False


class SimulatedWorld:
    """A run from its submission to its end, on a loop of its own.

    Args:
        seed: of all chance.
        script: what the run does.

    Attributes:
        rules: what must hold, and what was seen not to.
        trace: (virtual second, what happened), for people and for comparing two simulations.
        happens: called with `event NAME` for each event of the journal, and `message NAME` for each message, as it is sent.
    """

    def __init__(self, seed: int, script: RunScript) -> None:
        self.chance = random.Random(f"world-{seed}")
        self.script = script
        self.loop = VirtualLoop()
        self.clocks = VirtualClocks(self.loop)
        self.network = VirtualNetwork(self.loop, random.Random(f"network-{seed}"))
        self.disk = SimulatedDisk(self.loop, random.Random(f"disk-{seed}"), self._on_loop)
        self.disk.slow_s = script.disk_s
        self.root = Path(tempfile.mkdtemp(prefix="cordee-simulation-", dir=_memory()))
        self.folder = RunFolder.create(self.root / "runs", "simulated-run")
        self.folder.plan.write_text(json.dumps(_plan(self.folder, script)))
        self.names = [f"n{index}" for index in range(script.nodes + script.spares)]
        self.trace: list[tuple[float, str]] = []
        self.channels: dict[str, VirtualChannel] = {}
        self.hosts: dict[str, Host] = {}
        self.requests: list[dict[str, Any]] = []
        self.fate, self.requeues = "running", -1
        self.allocated_at = self.beaten_at = 0.0
        self.supervisor: VirtualProcess | None = None
        self.led: Supervisor | None = None
        self.over = self.blind = self.script_dead = self.given_back = False
        self.forgetful = 0
        self.happens: list[Callable[[str], None]] = []
        self._starts: deque[float] = deque(maxlen=_MOST_STARTS)
        self._requeuing = False
        self.said = io.StringIO()
        self.rules = Rules(self)
        self.sealers = Sealers(self, self.rules.broken)
        checkpoints = self.root / "checkpoints"
        self.training = SimulatedTraining(script.nodes * script.per_node, checkpoints, self.disk, self.rules.saved)
        self.network.observers.append(self.rules.sent)

    def _on_loop(self, call: str) -> None:
        self.rules.broken("an event loop waits for a disk", call)

    def note(self, text: str) -> None:
        """Write what happened into the trace."""
        self.trace.append((round(self.loop.now, 4), text.replace(str(self.root), "")))

    # The allocation

    def begin(self) -> None:
        """Submit the run, and give it its first allocation."""
        client_journal(self.folder.journal).append("submitted", backend="simulated")
        self._allocate()
        self._keep()

    def _allocate(self) -> None:
        self.requeues += 1
        self._requeuing, self.fate, self.script_dead = False, "running", False
        self.allocated_at = self.loop.now
        self.network.dark.clear()
        self.hosts = {name: Host(name) for name in self.names}
        self.note(f"allocation {self.requeues} begins")
        self._start_supervisor()
        for host in self.hosts.values():
            self.loop.after(self.chance.uniform(0.1, _AGENT_START_S), self._start_agent, host)

    def requeue(self) -> None:
        """End the allocation, and begin another one a moment later."""
        if self._requeuing:
            return
        self._requeuing = True
        self.note("requeued")
        self.loop.after(1.0, self._end_allocation)
        self.loop.after(1.0 + _QUEUE_S, self._allocate)

    def _end_allocation(self) -> None:
        for host in self.hosts.values():
            self.power_off(host, forever=False)
        self._kill_supervisors()

    def _supervisors(self) -> list[VirtualProcess]:
        return [process for process in self.loop.processes if process.name == "supervisor" and process.alive]

    def _kill_supervisors(self) -> None:
        for process in self._supervisors():
            process.kill()

    def rival(self) -> bool:
        """Start another supervisor beside the one that leads; returns whether one does."""
        leads = self.supervisor is not None and self.supervisor.alive and not self._requeuing
        if leads:
            self.blind = True
            self._start_supervisor()
        return leads

    def preempt(self, grace_s: float, fate: str = "preempted") -> None:
        """Tell everybody of the allocation to end; it goes after `grace_s`, and comes back."""
        self.fate = fate
        if self.supervisor is not None:
            self.supervisor.signal(signal.SIGTERM)
        for host in self.hosts.values():
            if host.agent is not None:
                host.agent.signal(signal.SIGTERM)
        self.loop.after(grace_s, self._preempted, self.requeues)

    def kill_script(self, unnoticed_s: float) -> None:
        """End the batch script, which shares its process group with who has no session of their own; Slurm notices it later."""
        self.script_dead = True
        supervisor = self.supervisor
        if supervisor is not None and supervisor.paused and not APART:  # the kernel hangs up on all of the group
            for process in [supervisor, *(host.agent for host in self.hosts.values() if host.agent is not None)]:
                process.kill()
        elif supervisor is not None:
            supervisor.signal(ORPHANED)
        self.loop.after(unnoticed_s, self._miss_script, self.requeues)

    def _miss_script(self, requeues: int) -> None:
        if requeues != self.requeues or self._requeuing or self.over:
            return
        self.note("the scheduler misses the batch script")
        self.fate = "killed"
        for host in self.hosts.values():
            if host.agent is not None:
                host.agent.signal(signal.SIGTERM)
        self.loop.after(_KILL_WAIT_S, self._end_killed, requeues)

    def _end_killed(self, requeues: int) -> None:
        if requeues == self.requeues and not self._requeuing:
            self._end_allocation()

    def suspend(self, seconds: float) -> None:
        """Have all processes of the allocation stand still; the clocks go on."""
        stopped = [process for process in self.loop.processes if process.alive and not process.paused]
        for process in stopped:
            process.pause()
        self.loop.after(seconds, self._resume, stopped)

    def _resume(self, stopped: list[VirtualProcess]) -> None:
        self.beaten_at = self.loop.now
        for process in stopped:
            process.resume()

    def _preempted(self, requeues: int) -> None:
        if requeues == self.requeues and not self.rules.ended:
            self.requeue()

    def _start_supervisor(self) -> None:
        async def lead() -> int:
            await self.disk.answers()
            lanes = Lanes(lambda name: VirtualLane(self.disk, self.loop))
            self.led = process.begin(lambda: Supervisor(self.folder, SimulatedPlace(self), self.disk, lanes))
            self.rules.took_over(self.led.segment.before)
            return await self.led.serve()

        self._starts.append(self.loop.now)
        self.beaten_at = self.loop.now
        process = VirtualProcess(
            self.loop, "supervisor", lead, lambda code, number: self._supervisor_ended(process, code)
        )
        self.supervisor = process
        self.note("supervisor starts")

    def _supervisor_ended(self, process: VirtualProcess, code: int | None) -> None:
        self.note(f"supervisor ended with {code} {process.error or ''}")
        if process.error is not None and not isinstance(process.error, CordeeError):
            self.rules.broken("the supervisor raised", repr(process.error))
        if self._requeuing or self.over or process is not self.supervisor:
            return
        newer = [other for other in self.loop.processes if other.name == "supervisor" and other.alive]
        if newer and isinstance(
            process.error, OwnershipError
        ):  # it claimed the run later, though it was started before
            self.supervisor = newer[-1]
            return
        if code in (0, 100) and self.rules.ended and self.script_dead and not self.given_back:
            self.rules.broken("the job is left behind", "its batch script is gone, and the run has ended")
        if code in (0, 100) or isinstance(process.error, OwnershipError):
            if isinstance(process.error, OwnershipError):
                self.rules.broken("the run was given up", f"to nobody: {process.error}")
            self.rules.left(code)
            self.over = self.rules.ended
            return
        if not self.hosts[self.names[0]].up or self.script_dead:
            return
        if process.error is not None and may_pass(process.error):
            self._starts.clear()
            self.loop.after(_REFUSED_S, self._restart_supervisor, self.requeues)
            return
        if len(self._starts) == _MOST_STARTS and self.loop.now - self._starts[0] < _STARTS_WINDOW_S:
            self.rules.broken("the supervisor ended ten times in a minute", repr(process.error))
            self.over = True
            return
        self.loop.after(_RESTART_S, self._restart_supervisor, self.requeues)

    def _restart_supervisor(self, requeues: int) -> None:
        kept = self.hosts[self.names[0]].up and not self.script_dead
        if requeues == self.requeues and not self._requeuing and not self.over and kept:
            self._start_supervisor()

    def _keep(self) -> None:
        """Kill a supervisor that gives no sign of life, as the batch script does."""
        process = self.supervisor
        if process is not None and process.alive and not self.script_dead and self.loop.now - self.beaten_at > _HUNG_S:
            self.note("supervisor hangs")
            process.kill()
        if not self.over:
            self.loop.after(5.0, self._keep)

    def _start_agent(self, host: Host) -> None:
        if self.hosts[host.name] is not host or not host.up or self.over:
            return
        incarnation = len(host.agents) + 1

        async def serve() -> int:
            await self.disk.answers()
            rescue = cast(Any, _Rescue(self))
            return await Agent(self.folder, host.name, incarnation, rescue, SimulatedMachine(self, host)).serve()

        def ended(code: int | None, number: int | None) -> None:
            self.note(
                f"agent {host.name} {incarnation} ended with {code if number is None else -number} {process.error or ''}"
            )
            if process.error is not None and not isinstance(process.error, CordeeError):
                self.rules.broken("an agent raised", repr(process.error))

        process = VirtualProcess(self.loop, f"agent {host.name}", serve, ended)
        process.clock_s = host.clock_s
        host.agents.append(process)
        self.note(f"agent {host.name} {incarnation} starts")

    def replace_agent(self, node: str, incarnation: int, requeues: int) -> None:
        """Start a new agent where the one of this incarnation, or none, is, once the machine is reached; it ends that one."""
        host = self.hosts[node]
        if requeues != self.requeues or not host.up or len(host.agents) > incarnation:
            return
        if any((node, way) in self.network.ways for way in (True, False)):
            self.loop.after(_SRUN_S, self.replace_agent, node, incarnation, requeues)
            return
        if host.agent is not None:
            host.agent.kill()
        self._start_agent(host)

    def power_off(self, host: Host, forever: bool = True) -> None:
        """End a machine with all that runs there; nobody is told."""
        host.up = False
        if forever:
            self.network.dark.add(host.name)
        for process in [*host.agents, *host.children.values()]:
            process.kill()
        if forever and host.name == self.names[0]:
            self._kill_supervisors()
            self.disk.lose_power("/journal/supervisor-")
            self.rules.power_lost()
            self.loop.after(_NODE_FAILS_S, self._node_failed, self.requeues)

    def _node_failed(self, requeues: int) -> None:
        """The scheduler learns that the first node, where the batch script ran, is gone, and queues the job again."""
        if requeues == self.requeues and not self.over:
            self.requeue()

    def signal(self, host: Host, process: VirtualProcess, number: int) -> None:
        """Give a signal; what the kernel holds ends later."""
        if number == signal.SIGKILL and host.stuck_s > 0 and process.alive:
            process.hold_killed(host.stuck_s)
        else:
            process.signal(number)

    def sweep(self, host: Host) -> None:
        """Kill all that agents have started on a machine."""
        for process in list(host.children.values()):
            if process.alive:
                self.signal(host, process, signal.SIGKILL)

    @property
    def alone(self) -> bool:
        """Whether no rank can live on that time does not reach: nothing is paused or held by the kernel."""
        return not any(process.alive and (process.paused or process.held) for process in self.loop.processes) and all(
            host.stuck_s == 0 for host in self.hosts.values()
        )

    # What ranks do

    def memory(self, host: Host) -> Path:
        """Return a machine's folder in memory."""
        path = self.root / host.name
        path.mkdir(exist_ok=True)
        return path

    def child_started(self, child: VirtualChild) -> None:
        """A process was started by an agent."""
        if child.is_rank:
            self.note(f"rank {child.rank} of attempt {child.attempt} starts on {child.host.name}")
            self.rules.rank_started(child)
            self.training.group(child).there.add(child.rank)

    def child_ended(self, child: VirtualChild, code: int | None, number: int | None) -> None:
        """A process that an agent started has ended."""
        child.host.children.pop(child.process.pid, None)
        if child.is_rank:
            self.note(f"rank {child.rank} of attempt {child.attempt} ended with {code if number is None else -number}")
            if code != 0:
                self.training.group(child).broken = True
        if child.process.error is not None:
            self.rules.broken("the simulation itself", repr(child.process.error))

    def cancel(self) -> None:
        """Do what `cordee cancel` does, as soon as the disk takes it."""
        if self.disk.troubles:
            self.loop.after(1.0, self.cancel)
            return
        client_journal(self.folder.journal).append("cancel_requested", by="user")
        self.requests.append({"request": "cancel", "by": "user"})
        self.rules.cancel_asked(self.loop.now)

    def close(self) -> None:
        """Forget all of it."""
        self.loop.bury()
        self.disk.close_all()
        _close_what_is_below(self.root)
        shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the clocks be this world's, and what is said kept, for the time of the block."""
        with (
            clocks_of(self.clocks),
            redirect_stderr(self.said),
            journals_watched(self._journaled, self.rules.stored),
        ):
            yield

    def _journaled(self, writer: JournalWriter, record: dict[str, Any]) -> None:
        self.rules.journaled(writer, record)
        for happens in list(self.happens):
            happens(f"event {record['event']}")


def _close_what_is_below(root: Path) -> None:
    """Close the files that simulated processes have left open, as the end of a process does."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if Path(os.readlink(f"/proc/self/fd/{name}")).is_relative_to(root):
                os.close(int(name))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_PLANS: dict[str, dict[str, Any]] = {}


def _plan(folder: RunFolder, script: RunScript) -> dict[str, Any]:
    """Return the run's plan, made as any made run's is."""
    if not _PLANS:
        layout = SimpleNamespace(nodes=1, per_node=1, sizes={"tp": 1, "pp": 1})
        _PLANS["plan"] = made_plan(folder, "simulated", cast(Any, SimpleNamespace(layout=layout))).document()
    plan = copy.deepcopy(_PLANS["plan"])
    plan.update(backend=BACKEND.name, run=folder.id, folder=str(folder.root), workdir="/", job_folder=str(folder.root))
    plan["sampling"].update(gpus="none", hardware=False)
    # What runs beside ranks looks at processes and connections of this machine, which are no part of a simulation.
    plan["node_parts"] = {port: part for port, part in plan["node_parts"].items() if not port.startswith(COMPANION)}
    step = plan["steps"][0]
    step["request"].update(
        nodes=script.nodes, spare_nodes=script.spares, min_nodes=script.nodes, ranks_per_node=script.per_node
    )
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(script.per_node)))}
    step["tasks"].update(argv=["train"], setup=["true"] if script.setup_s else [], bind="gpu", env=visible)
    checkpoints = str(folder.root.parent.parent / "checkpoints")
    step["checkpoint"].update(path=checkpoints, own_folder=True, grace_s=20.0)
    step["segment"].update(grace_s=20.0, max_segments=3)
    return plan


def script_of(chance: random.Random, nodes: int) -> RunScript:
    """Return a script by chance."""
    return replace(
        RunScript(nodes=nodes),
        spares=chance.choice((0, 1, 1)),
        per_node=chance.choice((1, 1, 2)),
        setup_s=chance.choice((0.0, 2.0, 6.0)),
        every=chance.choice((5, 5, 1000)),
        notice_s=chance.choice((0.001, 0.01, 1.0, 60.0)),
        stopping=chance.random() < 0.6,
        steps=chance.choice((20, 20, 20, 200)),
        disk_s=chance.choice((0.0005, 0.002, 0.02, 0.3)),
    )
