"""Trainings and faults that `cordee flight` was not made with: written after it, run by `benchmarks/flight.py`, never tuned to.

Other layouts (two-dimensional sharding with prefetch, ring attention, a pipeline with few microbatches, trainers beside
generators, metrics gathered by one rank), and other ways to fail than those of `support.flight.faults`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from support.flight.dumps import (
    PG,
    BatchCall,
    CpuStall,
    CpuWait,
    FlightEngine,
    GroupCall,
    MadeDumps,
    PeerCall,
    Program,
    Step,
    write_dump,
)
from support.flight.faults import FAULTS as TUNED
from support.flight.faults import TRAININGS, MadeFault, MadeTraining


def hybrid(shards: int, replicas: int, steps: int) -> MadeTraining:
    """Sharded within a node, replicated across: parameters are gathered ahead of their layer."""
    world = shards * replicas
    groups = {"all": PG("default", "default_pg", tuple(range(world)))}
    for replica in range(replicas):
        ranks = tuple(range(replica * shards, (replica + 1) * shards))
        groups[f"s{replica}"] = PG("mesh_shard_pg", "mesh_shard", ranks)
    for shard in range(shards):
        groups[f"r{shard}"] = PG("mesh_replicate_pg", "mesh_replicate", tuple(range(shard, world, shards)))
    programs: dict[int, Program] = {}
    for rank in range(world):
        shard, replica = f"s{rank // shards}", f"r{rank % shards}"
        program: Program = []
        for step in range(steps):
            for layer in range(3):
                size = 4096 * (layer + 1)
                program.append(
                    GroupCall(shard, "_all_gather_base", ((size,),), ((size * shards,),), "BFloat16", 10 + layer, True)
                )
            for layer in reversed(range(3)):
                size = 4096 * (layer + 1)
                program.append(
                    GroupCall(shard, "_reduce_scatter_base", ((size * shards,),), ((size,),), line=20 + layer)
                )
                program.append(GroupCall(replica, "all_reduce", ((size,),), ((size,),), line=30 + layer))
            program += [GroupCall("all", "all_reduce", line=40), CpuWait()]
            if step % 3 == 2:
                program += [GroupCall("all", "barrier", (), (), line=50), CpuWait()]
        programs[rank] = program
    return MadeTraining(groups, programs)


def ring(world: int, steps: int) -> MadeTraining:
    """Ring attention: keys go to the next rank while those of the one before arrive."""
    groups = {"all": PG("0", "default_pg", tuple(range(world))), "cp": PG("7", "context", tuple(range(world)))}
    programs: dict[int, Program] = {}
    for rank in range(world):
        onward, back = (rank + 1) % world, (rank - 1) % world
        exchange = BatchCall(
            "cp", (PeerCall("cp", "send", onward, (64, 128)), PeerCall("cp", "recv", back, (64, 128))), 12
        )
        step: Program = [exchange] * 3 + [_reduce("all", 8192, 20), _reduce("all", 1, 25), CpuWait()]
        programs[rank] = step * steps
    return MadeTraining(groups, programs)


def lean_pipeline(stages: int, lanes: int, steps: int) -> MadeTraining:
    """One microbatch, one by one through the stages, and the loss told to all by the last stage."""
    world = stages * lanes
    groups = {"all": PG("0", "default_pg", tuple(range(world)))}
    programs: dict[int, Program] = {rank: [] for rank in range(world)}
    for lane in range(lanes):
        ranks = [lane * stages + stage for stage in range(stages)]
        groups[f"p{lane}"] = PG(f"pp{lane}", "pp", tuple(ranks))
        for stage, rank in enumerate(ranks):
            before = [PeerCall(f"p{lane}", "recv", ranks[stage - 1], (32, 64), line=31)] if stage else []
            after = [PeerCall(f"p{lane}", "send", ranks[stage + 1], (32, 64), line=32)] if stage < stages - 1 else []
            back = [PeerCall(f"p{lane}", "recv", ranks[stage + 1], (32, 64), line=33)] if stage < stages - 1 else []
            up = [PeerCall(f"p{lane}", "send", ranks[stage - 1], (32, 64), line=34)] if stage else []
            told = GroupCall(f"p{lane}", "broadcast", ((1,),), ((1,),), line=35, root=stages - 1)
            one: Program = [*before, *after, *back, *up, told, _reduce("all", 2048, 36), CpuWait()]
            programs[rank] = one * steps
    return MadeTraining(groups, programs)


def actors(world: int, steps: int) -> MadeTraining:
    """Half trains, half generates; weights go to all from rank 0."""
    half = world // 2
    groups = {
        "all": PG("0", "default_pg", tuple(range(world))),
        "train": PG("1", "trainers", tuple(range(half))),
        "play": PG("2", "generators", tuple(range(half, world))),
    }
    programs: dict[int, Program] = {}
    for rank in range(world):
        own = [_reduce("train", 4096, 61), _reduce("train", 512, 62)] * 2
        if rank >= half:
            own = [GroupCall("play", "_all_gather_base", ((16,),), ((16 * (world - half),),), "Long", 63)] * 3
        programs[rank] = [
            *own,
            CpuWait(),
            GroupCall("all", "broadcast", ((9999,),), ((9999,),), line=64, root=0),
            CpuWait(),
        ] * steps
    return MadeTraining(groups, programs)


def metrics(world: int, steps: int) -> MadeTraining:
    """Gradients reduced, and metrics gathered by rank 0, which scatters the next work."""
    groups = {"all": PG("0", "default_pg", tuple(range(world)))}
    programs: dict[int, Program] = {}
    for rank in range(world):
        gathered = ((7,),) * world if rank == 0 else ()
        one: Program = [
            _reduce("all", 5000, 71),
            _reduce("all", 300, 72),
            GroupCall("all", "gather", ((7,),), gathered, line=73, root=0),
            GroupCall("all", "scatter", gathered, ((7,),), line=74, root=0),
            CpuWait(),
        ]
        programs[rank] = one * steps
    return MadeTraining(groups, programs)


LAYOUTS: dict[str, Callable[[random.Random], MadeTraining]] = {
    "hybrid": lambda dice: hybrid(4, dice.choice((2, 4)), 7),
    "ring": lambda dice: ring(dice.choice((4, 8)), 8),
    "lean pipeline": lambda dice: lean_pipeline(4, dice.choice((1, 2, 4)), 9),
    "actors": lambda dice: actors(dice.choice((8, 16)), 9),
    "metrics": lambda dice: metrics(dice.choice((4, 8, 16)), 10),
}
Programs = dict[int, Program]
Broken = tuple[set[int], Programs] | None


def _place(program: Program, dice: random.Random, kinds: type | tuple[type, ...]) -> int | None:
    places = [at for at, step in enumerate(program) if isinstance(step, kinds) and at > len(program) // 2]
    return dice.choice(places) if places else None


def _with(programs: Programs, rank: int, steps: list[Step]) -> Programs:
    return {**programs, rank: steps}


def ends_early(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """Its data ended before the others'."""
    program = training.programs[rank]
    waits = [at for at, step in enumerate(program) if isinstance(step, CpuWait) and at > len(program) // 2]
    return {rank}, _with(training.programs, rank, program[: dice.choice(waits[:-1]) + 1])


def node_stalls(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """Two ranks of one node wait for a file system, after the same step."""
    first = rank - rank % 2
    programs = dict(training.programs)
    nth = dice.randrange(3, 6)
    for one in (first, first + 1):
        waits = [at for at, step in enumerate(programs[one]) if isinstance(step, CpuWait)]
        programs[one] = [*programs[one][: waits[nth % len(waits)] + 1], CpuStall()]
    return {first, first + 1}, programs


def logs_more(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """One rank reduces something that only it logs."""
    program = training.programs[rank]
    at = _place(program, dice, GroupCall)
    if at is None:
        return None
    call = program[at]
    assert isinstance(call, GroupCall)
    return {rank}, _with(training.programs, rank, [*program[:at], _reduce(call.group, 77, 999), *program[at:]])


def other_branch(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """One rank evaluates where the others train."""
    program = training.programs[rank]
    at = _place(program, dice, GroupCall)
    if at is None or at + 3 >= len(program):
        return None
    call = program[at]
    assert isinstance(call, GroupCall)
    branch = [_reduce(call.group, 3, 991), GroupCall(call.group, "broadcast", ((3,),), ((3,),), line=992, root=0)]
    return {rank}, _with(training.programs, rank, [*program[:at], *branch, CpuWait(), *program[at + 3 :]])


def wrong_peer(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """One transfer goes to another rank of the group."""
    program = training.programs[rank]
    at = _place(program, dice, (PeerCall, BatchCall))
    if at is None:
        return None
    step = program[at]
    if isinstance(step, BatchCall):
        part = step.parts[0]
        if not isinstance(part, PeerCall):
            return None
        peers = [one for one in training.groups[part.group].ranks if one not in (rank, part.peer)]
        if not peers:
            return None
        peer = dice.choice(peers)
        new: Step = replace(step, parts=(replace(part, peer=peer), *step.parts[1:]))
    else:
        assert isinstance(step, PeerCall)
        peers = [one for one in training.groups[step.group].ranks if one not in (rank, step.peer)]
        if not peers:
            return None
        peer = dice.choice(peers)
        new = replace(step, peer=peer)
    return {rank}, _with(training.programs, rank, [*program[:at], new, *program[at + 1 :]])


def sends_twice(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """One transfer is made twice."""
    program = training.programs[rank]
    at = _place(program, dice, PeerCall)
    if at is None:
        return None
    return {rank}, _with(training.programs, rank, [*program[: at + 1], program[at], *program[at + 1 :]])


def lacks_receive(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """A batch of transfers lacks one of them."""
    program = training.programs[rank]
    at = _place(program, dice, BatchCall)
    if at is None:
        return None
    step = program[at]
    assert isinstance(step, BatchCall)
    return {rank}, _with(
        training.programs, rank, [*program[:at], replace(step, parts=step.parts[:1]), *program[at + 1 :]]
    )


def _of_all(program: Program, nth: int) -> int:
    """Return the place of a rank's nth call in which all ranks meet."""
    places = [at for at, step in enumerate(program) if isinstance(step, GroupCall) and step.group in ("all", "world")]
    return places[nth % len(places)]


def half_differs(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """Half of the ranks have another size, by a setting: nobody can be blamed."""
    programs = dict(training.programs)
    nth = dice.randrange(4, 7)
    for one in range(0, training.world, 2):
        at = _of_all(programs[one], nth)
        call = programs[one][at]
        if not isinstance(call, GroupCall) or len(call.inputs) != 1 or len(call.outputs) != 1:
            return None
        new = replace(call, inputs=((call.inputs[0][0] + 5,),), outputs=((call.outputs[0][0] + 5,),))
        programs[one] = [*programs[one][:at], new, *programs[one][at + 1 :]]
    return set(), programs


def other_root(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """One rank names another root, which no recorder writes down: nobody can be blamed."""
    program = training.programs[rank]
    at = _place(program, dice, GroupCall)
    call = program[at] if at is not None else None
    if not isinstance(call, GroupCall) or call.root is None:
        return None
    return set(), _with(training.programs, rank, [*program[:at], replace(call, root=call.root + 1), *program[at + 1 :]])


def two_types(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """Two ranks reduce in another type."""
    programs = dict(training.programs)
    other = (rank + 1) % training.world
    nth = dice.randrange(4, 7)
    if training.world < 8:
        return None
    for one in (rank, other):
        at = _of_all(programs[one], nth)
        call = programs[one][at]
        if not isinstance(call, GroupCall) or call.op not in ("all_reduce", "broadcast"):
            return None
        programs[one] = [*programs[one][:at], replace(call, dtype="Double"), *programs[one][at + 1 :]]
    return {rank, other}, programs


def forgets_a_step(training: MadeTraining, rank: int, dice: random.Random) -> Broken:
    """A step is skipped whole, as after a batch that could not be read."""
    program = training.programs[rank]
    waits = [at for at, step in enumerate(program) if isinstance(step, CpuWait) and at > len(program) // 2]
    nth = dice.randrange(len(waits) - 1)
    return {rank}, _with(training.programs, rank, [*program[: waits[nth] + 1], *program[waits[nth + 1] + 1 :]])


FAULTS: dict[str, Callable[[MadeTraining, int, random.Random], Broken]] = {
    "ends early": ends_early,
    "two of a node stall": node_stalls,
    "one more call": logs_more,
    "another branch": other_branch,
    "wrong peer": wrong_peer,
    "sent twice": sends_twice,
    "batch lacks one": lacks_receive,
    "half has another size": half_differs,
    "another root": other_root,
    "two have another type": two_types,
    "a step forgotten": forgets_a_step,
}


def make_held_out(name: str, seed: int) -> MadeFault:
    """Return a training that hangs by this fault, drawn by a seed."""
    dice = random.Random(f"held out {name} {seed}")
    while True:
        layout = dice.choice(list(LAYOUTS))
        training = LAYOUTS[layout](dice)
        broken = FAULTS[name](training, dice.randrange(training.world), dice)
        if broken is None:
            continue
        culprits, programs = broken
        made = FlightEngine(
            training.groups, programs, ring=dice.choice((30, 60, 200)), ahead=dice.choice((5, 50))
        ).run()
        if made.hangs:
            return MadeFault(name, layout, training.world, made, frozenset(culprits), ())


def make_crossed(name: str, seed: int) -> MadeFault:
    """Return a held-out fault in a training that was tuned with, or a fault that was tuned with in a held-out training."""
    dice = random.Random(f"crossed {name} {seed}")
    while True:
        if name in FAULTS:
            layout = dice.choice(list(TRAININGS))
            training = TRAININGS[layout](dice)
            broken = FAULTS[name](training, dice.randrange(training.world), dice)
            if broken is None:
                continue
            culprits, engine = broken[0], {"programs": broken[1]}
        else:
            layout = dice.choice(LAYOUTS_OF.get(name, tuple(LAYOUTS)))
            training = LAYOUTS[layout](dice)
            drawn = TUNED[name](training, dice.randrange(training.world), dice)
            if drawn is None:
                continue
            culprits, _, engine = drawn
        made = FlightEngine(
            training.groups,
            engine.get("programs", training.programs),
            ring=dice.choice((30, 60, 200)),
            ahead=dice.choice((5, 50)),
            held=engine.get("held", ()),
            broken=engine.get("broken", ()),
        ).run()
        if made.hangs:
            return MadeFault(name, layout, training.world, made, frozenset(culprits), ())


def _table(dice: random.Random, world: int, routed: bool) -> list[list[int]]:
    """Return how much each rank sends to each: as a router decides, or alike."""
    return [[dice.randrange(60, 180) if routed else 120 for _ in range(world)] for _ in range(world)]


def _exchanged(table: list[list[int]], rank: int, lists: bool) -> GroupCall:
    sent, got = table[rank], [row[rank] for row in table]
    if not lists:
        sent, got = [sum(sent)], [sum(got)]
    shapes = tuple((one,) for one in sent), tuple((one,) for one in got)
    return GroupCall("all", "all_to_all", *shapes, "BFloat16", 55)


def uneven(dice: random.Random, lists: bool) -> MadeFault:
    """One rank sends, or expects, other amounts than the others know of, after steps that were alike, uneven or routed."""
    world, steps = dice.choice((4, 8, 16)), dice.choice((3, 6, 10))
    routed, kept = dice.random() < 0.5, dice.random() < 0.3
    fixed = _table(dice, world, kept)
    programs: dict[int, Program] = {rank: [] for rank in range(world)}
    for _ in range(steps):
        table = _table(dice, world, True) if routed else fixed
        for rank in range(world):
            programs[rank] += [_exchanged(table, rank, lists), _reduce("all", 512, 40), CpuWait()]
    table = _table(dice, world, True) if routed else fixed
    guilty, how = dice.randrange(world), dice.choice(("sends", "expects", "both", "two peers"))
    others = dice.sample([rank for rank in range(world) if rank != guilty], 2)
    view = [list(row) for row in table]  # as the guilty rank sees it
    view[guilty][others[0]] -= 32 * (how != "expects")
    view[guilty][others[1]] += 32 * (how == "two peers")
    view[others[0]][guilty] -= 32 * (how in ("expects", "both"))
    for rank in range(world):
        programs[rank] += [_exchanged(view if rank == guilty else table, rank, lists), CpuWait()]
    groups = {"all": PG("0", "default_pg", tuple(range(world)))}
    made = FlightEngine(groups, programs, ring=dice.choice((12, 30, 200)), broken=[("all", 2 * steps + 1)]).run()
    # Routed sums say nothing about one rank, and one pair nothing about which of both.
    known = not routed or (lists and how == "two peers")
    known = known and not (how == "two peers" and not lists)  # its sums are as always
    return MadeFault("uneven", "routed" if routed else "fixed", world, made, frozenset({guilty} if known else ()), ())


def twice(dice: random.Random, seed: int) -> MadeFault:
    """Records stand twice: anywhere, at another place, with an older state."""
    fault = make_crossed(dice.choice(CROSSED), seed)
    for rank in dice.sample(range(fault.world), dice.randrange(1, fault.world)):
        entries = fault.made.entries[rank]
        for _ in range(dice.randrange(1, 4) if entries else 0):
            at = dice.randrange(len(entries))
            older = {"state": "scheduled", "retired": False} if dice.random() < 0.3 else {}
            entries.insert(dice.choice((at, at + 1, 0, len(entries))), {**entries[at], **older})
    return fault


class _HostNamed(MadeDumps):
    """Dumps whose names or folders say the host, sometimes beside older ones of all ranks."""

    hosts: tuple[str, ...] = ()
    form = ""
    older = False

    def write(self, folder: Path, *, without: Iterable[int] = (), form: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        each = -(-len(self.entries) // len(self.hosts))
        for rank in set(self.entries) - set(without):
            path = folder / self.form.format(host=self.hosts[rank // each], rank=rank)
            path.parent.mkdir(exist_ok=True)
            write_dump(path, self.dump(rank))
            if self.older:
                before = [
                    {**one, "time_created_ns": one["time_created_ns"] - 7_200_000_000_000, "state": "completed"}
                    for one in self.entries[rank]
                ]
                path = folder / self.form.format(host="before-" + self.hosts[rank // each], rank=rank)
                path.parent.mkdir(exist_ok=True)
                write_dump(path, {**self.dump(rank), "entries": before})
                os.utime(path, (1e9, 1e9))


def host_named(dice: random.Random, seed: int) -> MadeFault:
    """A fault whose dumps lie by host."""
    fault = make_crossed(dice.choice(CROSSED), seed)
    made = _HostNamed(fault.made.groups, fault.made.entries, fault.made.hangs, fault.made.config)
    start = dice.choice(("node", "gpu-a100-", "ip-10-0-0-", "n1c2.cluster", "host_"))
    made.hosts = tuple(f"{start}{number:02}" for number in range(dice.choice((1, 2, 4))))
    made.form = dice.choice(("nccl_trace_rank_{host}_{rank}", "{host}-{rank}.pkl", "{host}/rank_{rank}"))
    made.older = dice.random() < 0.4
    return replace(fault, made=made)


MENDED = ["record twice", "uneven all-to-all", "lists of all-to-all", "host in the name"]


def make_mended(name: str, seed: int) -> MadeFault:
    """Return dumps of a kind that were once misread, drawn by a seed."""
    dice = random.Random(f"mended {name} {seed}")
    match name:
        case "record twice":
            return twice(dice, seed)
        case "host in the name":
            return host_named(dice, seed)
    return uneven(dice, name.startswith("lists"))


# Where such a fault can be.
LAYOUTS_OF = {
    "transfer left out": ("ring", "lean pipeline"),
    "transfer size": ("ring", "lean pipeline"),
    "both send": ("lean pipeline",),
}
_NOWHERE = ("another root", "batch", "all-to-all")
CROSSED = [name for name in (*FAULTS, *TUNED) if name not in _NOWHERE]


def _reduce(group: str, size: int, line: int) -> GroupCall:
    return GroupCall(group, "all_reduce", ((size,),), ((size,),), line=line)
