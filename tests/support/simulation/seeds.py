"""Seeds, one after the other: each is a run and its faults; a seed that fails replays exactly, and is made shorter."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.simulation.faults import KINDS, Schedule, VirtualFault, schedule
from support.simulation.loop import Stalled
from support.simulation.surroundings import RunScript
from support.simulation.world import SimulatedWorld, script_of

SCHEMA = "cordee.simulation/1"
_BLOCK = 50
_BOUND_S = 400.0
_SETTLE_S = 150.0
_LOOK_S = 1.0


@dataclass(frozen=True)
class Case:
    """What a simulation is made of: the same case goes the same way."""

    seed: int
    script: RunScript
    faults: tuple[VirtualFault, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"seed": self.seed, "script": asdict(self.script), "faults": [fault.document() for fault in self.faults]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Case:
        """Return the case that `document` gave."""
        faults = tuple(VirtualFault(**fault) for fault in document["faults"])
        return cls(document["seed"], RunScript(**document["script"]), faults)


@dataclass
class SimulationResult:
    """What a simulation came to.

    Attributes:
        violations: (rule, what was seen).
        trace: (virtual second, what happened).
        virtual_s: how long it took, in virtual time.
        end: the run's last state.
        met: how often which (kind of fault, phase) came together.
        said: what supervisor and agents wrote to standard error.
        moments: how often each message was sent and each event written.
        journal: the run's events.
    """

    case: Case
    violations: list[tuple[str, str]]
    trace: list[tuple[float, str]]
    virtual_s: float
    end: str
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    said: str = ""
    moments: Counter[str] = field(default_factory=Counter)
    journal: list[dict[str, Any]] = field(default_factory=list)


def case_of(seed: int, nodes: int = 2, kinds: tuple[str, ...] = KINDS) -> Case:
    """Return the case of a seed.

    Args:
        nodes: that the run needs.
        kinds: of the faults that may happen.
    """
    chance = random.Random(f"case-{seed}-{nodes}")
    script = script_of(chance, nodes)
    return Case(seed, script, tuple(schedule(chance, nodes + script.spares, kinds)))


def simulate(case: Case) -> SimulationResult:
    """Run a case to its end."""
    world = SimulatedWorld(case.seed, case.script)
    plan = Schedule(world, list(case.faults))

    async def lead() -> bool:
        world.begin()
        while not world.over:
            await asyncio.sleep(_LOOK_S)
            if world.loop.now > max(plan.last_s, 60.0) + _BOUND_S:
                return False
        over_at = world.loop.now
        while any(process.alive for process in world.loop.processes):
            if world.loop.now > max(over_at, plan.last_s) + _SETTLE_S:
                break
            await asyncio.sleep(_LOOK_S)
        return True

    hook, sys.unraisablehook = sys.unraisablehook, lambda about: None  # what was killed has no last words
    try:
        with world.running():
            try:
                in_time = world.loop.run_until_complete(lead())
            except Stalled as error:
                world.rules.broken("time stands still", str(error))
                in_time = False
            world.rules.at_end(in_time)
        end = str(world.rules.end.get("state", world.rules.phase))
        rules, said = world.rules, world.said.getvalue()
        return SimulationResult(
            case, rules.violations, world.trace, world.loop.now, end, plan.met, said, plan.seen, rules.journal
        )
    finally:
        with world.running():
            world.close()
        sys.unraisablehook = hook


def shrunk(result: SimulationResult) -> SimulationResult:
    """Return the shortest schedule of a failing case that still breaks its first rule: no fault of it can be left out."""
    rule = result.violations[0][0]

    def fails(case: Case) -> SimulationResult | None:
        tried = simulate(case)
        return tried if any(rule == broken for broken, _ in tried.violations) else None

    best, at = result, 0
    while at < len(best.case.faults):
        faults = best.case.faults[:at] + best.case.faults[at + 1 :]
        tried = fails(Case(best.case.seed, best.case.script, faults))
        if tried is None:
            at += 1
        else:
            best = tried
    return best


class Campaign:
    """What many seeds came to.

    Attributes:
        seeds, virtual_s, cpu_s: how many, for how long in virtual time, and what that took.
        met: how often which kind of fault met which phase of a run.
        ends: how often runs ended how.
        broken: seeds by the rule that they broke.
    """

    def __init__(self) -> None:
        self.seeds, self.virtual_s, self.cpu_s = 0, 0.0, 0.0
        self.met: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.broken: dict[str, list[int]] = {}

    def add(self, result: SimulationResult) -> None:
        """Take one result."""
        self.seeds += 1
        self.virtual_s += result.virtual_s
        self.met.update(result.met)
        self.ends[result.end] += 1
        for rule, _ in result.violations:
            self.broken.setdefault(rule, []).append(result.case.seed)

    def join(self, other: Campaign) -> None:
        """Take what other seeds came to."""
        self.seeds += other.seeds
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.met.update(other.met)
        self.ends.update(other.ends)
        for rule, seeds in other.broken.items():
            self.broken.setdefault(rule, []).extend(seeds)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        met = [[kind, phase, count] for (kind, phase), count in sorted(self.met.items())]
        times = {"virtual_s": round(self.virtual_s), "cpu_s": round(self.cpu_s, 2)}
        return {"seeds": self.seeds, **times, "met": met, "ends": dict(self.ends), "broken": self.broken}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Campaign:
        """Return what `document` gave."""
        done = cls()
        done.seeds, done.virtual_s, done.cpu_s = document["seeds"], document["virtual_s"], document["cpu_s"]
        done.met.update({(kind, phase): count for kind, phase, count in document["met"]})
        done.ends.update(document["ends"])
        done.broken = document["broken"]
        return done


def campaign(
    numbers: Iterable[int],
    case_at: Callable[[int], Case] = case_of,
    failed: Callable[[SimulationResult], None] = lambda result: None,
) -> Campaign:
    """Simulate many cases.

    Args:
        numbers: of the cases, mostly their seeds.
        case_at: returns the case of a number.
        failed: called with each that breaks a rule.
    """
    done, began = Campaign(), time.process_time()
    for number in numbers:
        result = simulate(case_at(number))
        done.add(result)
        if result.violations:
            failed(result)
    done.cpu_s = time.process_time() - began
    return done


def resumed(
    path: Path | None,
    numbers: range,
    case_at: Callable[[int], Case] = case_of,
    about: dict[str, Any] | None = None,
    failed: Callable[[SimulationResult], None] = lambda result: None,
) -> Iterator[Campaign]:
    """Simulate many cases in blocks, and yield what all of them came to so far; blocks that `path` has are not done again.

    Args:
        path: a file of JSON lines, one for each block that was done; None: it is not kept.
        about: what else `case_at` depends on; blocks of other cases are passed over.
    """
    key = {"schema": SCHEMA, **(about or {})}
    done, known = Campaign(), _known(path, key)
    for first in range(numbers.start, numbers.stop, _BLOCK):
        block = range(first, min(first + _BLOCK, numbers.stop))
        found = known.get((block.start, block.stop))
        if found is None:
            found = campaign(block, case_at, failed)
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps({**key, "first": first, "stop": block.stop, **found.document()}) + "\n")
        done.join(found)
        yield done


def _known(path: Path | None, key: dict[str, Any]) -> dict[tuple[int, int], Campaign]:
    """Return the blocks of cases that were done before in the same way."""
    known = {}
    for line in path.read_text().splitlines() if path is not None and path.exists() else ():
        try:
            document = json.loads(line)
        except ValueError:  # the last line of a campaign that was killed
            continue
        if all(document.get(name) == value for name, value in key.items()):
            known[document["first"], document["stop"]] = Campaign.from_document(document)
    return known
