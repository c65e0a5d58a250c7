"""What may go wrong in a simulation: faults by chance or by hand, each at a time or at a moment of the protocol.

To add a kind: a function here in `_KINDS`, with what it means in its docstring, and its weight.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from support.simulation.disk import TROUBLES

if TYPE_CHECKING:
    from support.simulation.loop import VirtualProcess
    from support.simulation.machine import Host
    from support.simulation.world import SimulatedWorld

_LONGEST_S = 25.0
_EXCUSED_S = 5.0
_SAME = 0.25
_SEALS_S, _LOOKS_S = 0.05, 0.02
_AGAIN_S = 0.002
_AT_MESSAGE = ("lose", "cut", "twice")
_MESSAGES = (
    "hello", "welcome", "setup", "setup_done", "checks", "checks_output", "checks_done", "port", "ranks",
    "ranks_started", "ranks_ended", "stop", "stop_request", "stop_answers", "stop_at", "ack", "telemetry", "bye",
    "lease", "alive", "clear", "cleared",
)  # fmt: skip
_EVENTS = (
    "supervisor_started", "node_connected", "node_verdict", "nodes_chosen", "attempt_started", "rank_started",
    "rank_exited", "attempt_ended", "restart_scheduled", "node_lost", "stop_requested", "segment_ended", "ended",
)  # fmt: skip


@dataclass(frozen=True)
class VirtualFault:
    """One thing that goes wrong.

    Attributes:
        kind: one of KINDS.
        at: virtual seconds after the beginning; or after the moment that `on` names, where it names one.
        on: empty, or `message NAME N` or `event NAME N`: the N-th such message sent, or event written, in this run; or
            `phase NAME N`: the N-th time that the run begins this phase.
        node: index of the node that it befalls.
        seconds: how long it lasts.
    """

    kind: str
    at: float
    on: str = ""
    node: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as a replay takes it."""
        return asdict(self)

    def __str__(self) -> str:
        when = f"{self.at:g} s after {self.on}" if self.on else f"at {self.at:g} s"
        return f"{self.kind} n{self.node} {when}" + (f" for {self.seconds:g} s" if self.seconds else "")


def schedule(chance: random.Random, nodes: int, kinds: tuple[str, ...]) -> list[VirtualFault]:
    """Return up to four faults by chance, of these kinds."""
    if chance.random() < _SAME:
        kinds = (chance.choice(kinds),)
    weights = [WEIGHTS[kind] for kind in kinds]
    faults = []
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        kind = chance.choices(kinds, weights)[0]
        faults.append(VirtualFault(kind, *_moment(chance), chance.randrange(nodes), _lasts_s(kind, chance)))
    return faults


def _lasts_s(kind: str, chance: random.Random) -> float:
    if kind not in LASTING:
        return 0.0
    longer = (20.0, 70.0, 180.0) if kind in TROUBLES else (2.0,)
    return float(chance.choice((0.5, *longer, 6.0, round(chance.uniform(0.1, _LONGEST_S), 1))))


def _moment(chance: random.Random) -> tuple[float, str]:
    how = chance.random()
    if how < 0.4:
        return round(chance.uniform(0.0, 20.0), 2), ""
    name = f"message {chance.choice(_MESSAGES)}" if how < 0.75 else f"event {chance.choice(_EVENTS)}"
    return chance.choice((0.0, 0.0, 0.001, 0.3, 3.0)), f"{name} {chance.choice((1, 1, 2, 2, 3, 4))}"


class Schedule:
    """Has faults happen in a world.

    Args:
        world: not begun yet.
        faults: what is to happen.

    Attributes:
        met: how often which (kind, phase of the run) came together, where there was something that the fault could befall.
            What waits for a phase and finds nothing, waits until there is something, or the phase is over.
        last_s: when the last one is over.
        seen: how often each moment was there, by its name.
    """

    def __init__(self, world: SimulatedWorld, faults: list[VirtualFault]) -> None:
        self._world = world
        self.met: Counter[tuple[str, str]] = Counter()
        self.last_s = 0.0
        self.seen: Counter[str] = Counter()
        world.rules.only_suspended = bool(faults) and all(fault.kind == "suspend" for fault in faults)
        self._waiting = {id(fault): fault for fault in faults if fault.on}
        self._phase = ""
        for fault in faults:
            if not fault.on:
                world.loop.after(fault.at, self._happen, fault)
        world.happens.append(self._written)
        world.network.observers.append(lambda end, message: self._moment(f"message {message.get('t')}", end.node))

    def _written(self, name: str) -> None:
        phase, self._phase = self._phase, self._world.rules.phase
        self._moment(name)
        if phase != self._phase:
            self._moment(f"phase {self._phase}")

    def _moment(self, name: str, node: str = "") -> None:
        self.seen[name] += 1
        moment = f"{name} {self.seen[name]}"
        for key, fault in list(self._waiting.items()):
            if fault.on == moment:
                del self._waiting[key]
                if node and fault.kind in _AT_MESSAGE:
                    fault = VirtualFault(fault.kind, fault.at, fault.on, self._world.names.index(node), fault.seconds)
                if node and fault.at == 0.0 and fault.kind in ("lose", "twice"):
                    self._happen(fault)
                else:
                    self._world.loop.after(fault.at, self._happen, fault)

    def _happen(self, fault: VirtualFault, waited: bool = False) -> None:
        world = self._world
        if world.over and world.rules.ended and fault.kind in ("cancel", "preempt", "requeue", "rival"):
            return
        phase = world.rules.phase
        if not waited:
            world.note(f"FAULT {fault}")
        host = world.hosts[world.names[fault.node % len(world.names)]]
        if _KINDS[fault.kind](world, host, fault) is False:
            if fault.on.startswith(f"phase {phase} ") and not world.over:
                world.loop.after(_AGAIN_S, self._happen_in, phase, fault)
            return
        self.met[fault.kind, phase] += 1
        self.last_s = world.rules.calm_at = max(self.last_s, world.loop.now + fault.seconds)
        world.rules.orders.trouble_s += fault.seconds

    def _happen_in(self, phase: str, fault: VirtualFault) -> None:
        if self._world.rules.phase == phase:
            self._happen(fault, waited=True)


# What befalls a machine of a world; False: there was nothing that it could befall.
Befall = Callable[["SimulatedWorld", "Host", VirtualFault], "bool | None"]


def _cut(sides: tuple[bool, ...]) -> Befall:
    """The ends of the node's connections are reset: of both, or of one while the other does not learn of it."""
    return lambda world, host, fault: world.network.cut(host.name, sides)


def _lose(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """The next message from or to the node, or the one that is about to be sent, is lost with its connection."""
    world.network.losing.add(host.name)


def _way(what: str, ways: tuple[bool, ...]) -> Befall:
    def begin(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
        _excuse(world, host, fault)
        for way in ways:
            world.network.ways[host.name, way] = what
            world.loop.after(fault.seconds, world.network.heal, host.name, way)

    return begin


def _blip(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """The network is away for a while, and connections are reset as it goes."""
    world.network.cut(host.name, (True, False))
    _way("swallow", (True, False))(world, host, fault)


def _twice(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """A numbered message comes twice, as one does that is sent again."""
    world.network.double.add(host.name)


def _delay(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Messages take up to a second longer."""
    world.network.delay_s[host.name] = min(1.0, fault.seconds / 10)
    world.loop.after(fault.seconds, world.network.delay_s.pop, host.name, None)


def _kill_rank(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """A rank is killed."""
    ranks = [process for process in host.children.values() if ":rank-" in process.name and process.alive]
    if ranks:
        world.rules.rank_faults += 1
        ranks[0].kill()
    return bool(ranks)


def _bug(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Rank 0 fails by itself, once, at a step to come."""
    world.rules.rank_faults += 1
    world.training.bugs.append(5 + fault.node * 4)


def _kill_agent(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """An agent is killed, and its ranks with it.

    Where no supervisor knows of it yet, nobody replaces it: the run goes on without, or the job is given up.
    """
    if host.agent is None or not host.agent.alive:
        return False
    host.agent.kill()
    world.rules.excused.add(host.name)
    return True


def _kill_supervisor(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The supervisor is killed."""
    leader = _leader(world)
    if leader is None:
        return False
    leader.kill()
    return True


def _power_off(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """A machine is gone, without a word."""
    if not host.up:
        return False
    world.rules.excused.add(host.name)
    world.power_off(host)
    return True


def _pause_agent(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """An agent stands still; its ranks do not."""
    if host.agent is None or not host.agent.alive:
        return False
    _excuse(world, host, fault)
    host.agent.pause()
    world.loop.after(fault.seconds, host.agent.resume)
    return True


def _pause_supervisor(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The supervisor stands still, as on a file system that does."""
    leader = _leader(world)
    if leader is None:
        return False
    for other in world.hosts.values():
        _excuse(world, other, fault)
    leader.pause()
    world.loop.after(fault.seconds, leader.resume)
    return True


def _suspend(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The scheduler suspends the job: all its processes stand still, and the clocks do not."""
    if world.supervisor is None:
        return False
    for other in world.hosts.values():
        _excuse(world, other, fault)
    world.suspend(fault.seconds)
    return True


def _kill_script(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The batch script is killed, and the scheduler notices it after a while."""
    if _leader(world) is None or world.script_dead:
        return False
    world.kill_script(fault.seconds)
    return True


def _hung_script(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The batch script is killed, and noticed at once, while the supervisor stands still."""
    leader = _leader(world)
    if leader is None or world.script_dead:
        return False
    leader.pause()
    world.kill_script(0.0)
    world.loop.after(fault.seconds, leader.resume)
    return True


def _stuck(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """What is killed on a machine is held by the kernel for a while."""
    host.stuck_s = fault.seconds
    world.loop.after(2 * fault.seconds, setattr, host, "stuck_s", 0.0)


def _cancel(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Somebody cancels the run."""
    world.cancel()


def _preempt(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """The scheduler takes the allocation, with some warning, and gives another."""
    world.preempt(max(fault.seconds, 1.0))


def _requeue(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Somebody has the scheduler queue the job again, at once."""
    world.preempt(1.0, "requeued")


def _forget(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """The scheduler forgets the next agent that it is asked to start."""
    world.forgetful += 1


def _rival(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """Another supervisor is started, from where nobody can see that the present one lives."""
    return world.rival()


def _time_limit(world: SimulatedWorld, host: Host, fault: VirtualFault) -> bool:
    """The job's time is nearly over."""
    leader = _leader(world)
    if leader is None:
        return False
    leader.signal(signal.SIGUSR1)
    return True


def _clock(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """A machine's wall clock jumps."""
    host.clock_s += fault.seconds * 100 - 600
    if host.agent is not None:
        host.agent.clock_s = host.clock_s
    if host.name == world.names[0] and world.supervisor is not None:
        world.supervisor.clock_s = host.clock_s


def _memory_full(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Another program fills a machine's memory: no rank can be started there, which ends the run."""
    world.rules.rank_faults += 2
    host.full = True
    world.loop.after(fault.seconds, setattr, host, "full", False)


def _see_former(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """A machine sees the run's folder as it was before the newest supervisor came, as one that caches it."""
    _excuse(world, host, fault)
    host.sees_former = True
    world.loop.after(fault.seconds, setattr, host, "sees_former", False)


def _sealers(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    """Somebody who seals the run's telemetry is killed, and two others find what is left of it at about the same moment."""
    world.rules.orders.starts += 1
    world.loop.after(_SEALS_S, world.sealers.begin().kill)
    for _ in range(2):
        world.loop.after(_SEALS_S + world.disk.chance.uniform(0.0, _LOOKS_S), world.sealers.begin)


def _disk(trouble: str) -> Befall:
    def begin(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
        world.disk.begin(trouble)
        world.loop.after(fault.seconds, world.disk.end, trouble)

    return begin


def _leader(world: SimulatedWorld) -> VirtualProcess | None:
    """Return the supervisor, if one is there."""
    return world.supervisor if world.supervisor is not None and world.supervisor.alive else None


def _excuse(world: SimulatedWorld, host: Host, fault: VirtualFault) -> None:
    if fault.seconds > _EXCUSED_S:
        world.rules.excused.add(host.name)


_KINDS: dict[str, Befall] = {
    "cut": _cut((True, False)),
    "lose": _lose,
    "twice": _twice,
    "cut_agent": _cut((False,)),
    "cut_supervisor": _cut((True,)),
    "hold_to": _way("hold", (True,)),
    "hold_from": _way("hold", (False,)),
    "hold": _way("hold", (True, False)),
    "swallow_to": _way("swallow", (True,)),
    "swallow_from": _way("swallow", (False,)),
    "swallow": _way("swallow", (True, False)),
    "blip": _blip,
    "delay": _delay,
    "kill_rank": _kill_rank,
    "bug": _bug,
    "kill_agent": _kill_agent,
    "kill_supervisor": _kill_supervisor,
    "power_off": _power_off,
    "pause_agent": _pause_agent,
    "pause_supervisor": _pause_supervisor,
    "suspend": _suspend,
    "kill_script": _kill_script,
    "hung_script": _hung_script,
    "stuck": _stuck,
    "cancel": _cancel,
    "preempt": _preempt,
    "requeue": _requeue,
    "forget": _forget,
    "rival": _rival,
    "time_limit": _time_limit,
    "clock": _clock,
    "memory_full": _memory_full,
    "see_former": _see_former,
    "sealers": _sealers,
    **{trouble: _disk(trouble) for trouble in TROUBLES},
}
KINDS = tuple(_KINDS)
WEIGHTS: Counter[str] = Counter(dict.fromkeys(KINDS, 2))
WEIGHTS.update({"lose": 6, "cut": 2, "blip": 3, "kill_rank": 2, "kill_supervisor": 2, "stuck": -1, "clock": -1})
LASTING = frozenset(
    kind
    for kind in KINDS
    if kind.startswith(("hold", "swallow", "pause", "disk"))
    or kind in ("blip", "delay", "stuck", "preempt", "clock", "memory_full", "see_former")
    or kind in ("suspend", "kill_script", "hung_script")
)
