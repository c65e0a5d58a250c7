"""Trainings and what goes wrong in them, for `flight_dumps`: each fault knows who is to blame, and what it may be called."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
    Shape,
    changed,
    resized,
)

# A call that is left out shows by what follows it.
LEFT_OUT = ("missing-rank", "cpu-stall", "wrong-collective", "size", "dtype", "order", "coalesced", "p2p")


@dataclass
class MadeTraining:
    """Programs of all ranks, and their groups by the names that programs use."""

    groups: dict[str, PG]
    programs: dict[int, Program]

    @property
    def world(self) -> int:
        return len(self.programs)


@dataclass
class MadeFault:
    """A training that hangs.

    Attributes:
        culprits: who is to blame; several where ranks share it; empty where nobody is.
        kinds: what it may be called.
    """

    name: str
    training: str
    world: int
    made: MadeDumps
    culprits: frozenset[int]
    kinds: tuple[str, ...]


def ddp(world: int, steps: int) -> MadeTraining:
    """Data parallel: buckets of gradients in the background, then the loss."""
    groups = {"world": PG("0", "default_pg", tuple(range(world)))}
    buckets = [(3 << 18, 31), (5 << 18, 31), (1 << 17, 31)]
    program: Program = [_broadcast("world", (1 << 20,), 12)]
    for _ in range(steps):
        program += [_reduce("world", (size,), line, asynchronous=True) for size, line in buckets]
        program += [_reduce("world", (1,), 44), CpuWait()]
    program.append(GroupCall("world", "barrier", (), (), line=60))
    return MadeTraining(groups, {rank: list(program) for rank in range(world)})


def sharded(world: int, steps: int) -> MadeTraining:
    """Fully sharded: parameters gathered layer by layer, gradients scattered, the norm reduced."""
    groups = {"world": PG("0", "default_pg", tuple(range(world))), "fsdp": PG("1", "mesh_dp", tuple(range(world)))}
    layers = [1 << 16, 3 << 15, 1 << 17]
    program: Program = []
    for _ in range(steps):
        for number, size in enumerate(layers):
            program.append(_gather("fsdp", size, world, 100 + number))
        for number, size in enumerate(reversed(layers)):
            program.append(_gather("fsdp", size, world, 110 + number))
            program.append(_scatter("fsdp", size, world, 120 + number))
        program += [_reduce("world", (1,), 130), CpuWait()]
    return MadeTraining(groups, {rank: list(program) for rank in range(world)})


def three_dimensional(dp: int, pp: int, tp: int, steps: int) -> MadeTraining:
    """Tensor, pipeline and data parallel, as Megatron lays ranks out; transfers one by one."""
    world = dp * pp * tp
    groups = {"world": PG("0", "default_pg", tuple(range(world)))}

    def rank_of(d: int, p: int, t: int) -> int:
        return (p * dp + d) * tp + t

    number = 1
    for desc, members in (
        ("DATA_PARALLEL_GROUP", [[rank_of(d, p, t) for d in range(dp)] for p in range(pp) for t in range(tp)]),
        ("TENSOR_MODEL_PARALLEL_GROUP", [[rank_of(d, p, t) for t in range(tp)] for p in range(pp) for d in range(dp)]),
        (
            "PIPELINE_MODEL_PARALLEL_GROUP",
            [[rank_of(d, p, t) for p in range(pp)] for d in range(dp) for t in range(tp)],
        ),
    ):
        for ranks in members:
            groups[f"{desc[0].lower()}{ranks}"] = PG(str(number), desc, tuple(ranks))
            number += 1
    own: dict[tuple[str, int], str] = {
        (key[0], rank): key for key, pg in groups.items() if key != "world" for rank in pg.ranks
    }
    programs: dict[int, Program] = {}
    for rank in range(world):
        p = rank // (dp * tp)
        before, after = rank - dp * tp, rank + dp * tp
        data, tensor, pipe = own["d", rank], own["t", rank], own["p", rank]
        program: Program = []
        for _ in range(steps):
            for _ in range(2):
                program += [PeerCall(pipe, "recv", before, (4, 1024), line=201)] * (p > 0)
                program += [_reduce(tensor, (4, 1024), 210), _reduce(tensor, (4, 4096), 214)]
                program += [PeerCall(pipe, "send", after, (4, 1024), line=220)] * (p < pp - 1)
                program += [PeerCall(pipe, "recv", after, (4, 1024), line=230)] * (p < pp - 1)
                program += [_reduce(tensor, (4, 4096), 234), _reduce(tensor, (4, 1024), 238)]
                program += [PeerCall(pipe, "send", before, (4, 1024), line=240)] * (p > 0)
            program += [_scatter(data, 1 << 14, dp, 250), _reduce("world", (1,), 255), CpuWait()]
            program += [_gather(data, 1 << 14, dp, 260)]
        programs[rank] = program
    return MadeTraining(groups, programs)


def experts(world: int, steps: int) -> MadeTraining:
    """Experts: tokens go to their experts and back, then gradients are reduced in one batch."""
    groups = {
        "world": PG("0", "default_pg", tuple(range(world))),
        "ep": PG("1", "expert_parallel", tuple(range(world))),
    }
    program: Program = []
    for _ in range(steps):
        for line in (301, 305):
            program.append(GroupCall("ep", "all_to_all", ((512, 64),), ((512, 64),), "BFloat16", line))
        parts = tuple(_reduce("world", (size,), 310) for size in (1024, 2048, 512))
        program += [BatchCall("world", parts, 310), _reduce("world", (1,), 320), CpuWait()]
    return MadeTraining(groups, {rank: list(program) for rank in range(world)})


def batched_pipeline(stages: int, width: int, steps: int) -> MadeTraining:
    """A pipeline whose neighbours exchange in batches (`batch_isend_irecv`), in several replicas."""
    world = stages * width
    groups = {"world": PG("0", "default_pg", tuple(range(world)))}
    programs: dict[int, Program] = {rank: [] for rank in range(world)}
    for lane in range(width):
        ranks = [stage * width + lane for stage in range(stages)]
        name = f"p{lane}"
        groups[name] = PG(str(lane + 1), "pipeline", tuple(ranks))
        for stage, rank in enumerate(ranks):
            for _ in range(steps):
                if stage > 0:
                    programs[rank].append(BatchCall(name, (PeerCall(name, "recv", ranks[stage - 1], (8, 256)),), 401))
                if stage < stages - 1:
                    peer = ranks[stage + 1]
                    programs[rank].append(BatchCall(name, (PeerCall(name, "send", peer, (8, 256)),), 402))
                    programs[rank].append(BatchCall(name, (PeerCall(name, "recv", peer, (8, 256)),), 403))
                if stage > 0:
                    programs[rank].append(BatchCall(name, (PeerCall(name, "send", ranks[stage - 1], (8, 256)),), 404))
                programs[rank] += [_reduce("world", (1,), 410), CpuWait()]
    return MadeTraining(groups, programs)


TRAININGS: dict[str, Callable[[random.Random], MadeTraining]] = {
    "ddp": lambda dice: ddp(dice.choice((4, 8, 16)), 8),
    "fsdp": lambda dice: sharded(dice.choice((4, 8, 16)), 6),
    "3d": lambda dice: three_dimensional(dice.choice((2, 4)), 2, dice.choice((2, 4)), 9),
    "moe": lambda dice: experts(dice.choice((4, 8)), 8),
    "pipeline": lambda dice: batched_pipeline(4, dice.choice((2, 4)), 9),
}


def make_fault(name: str, seed: int, ring: int | None = None) -> MadeFault:
    """Return a training that hangs by this fault, drawn by a seed; draws again where one passes unharmed.

    Args:
        ring: how many entries a recorder holds; None: drawn, too.

    Raises:
        KeyError: there is no such fault.
    """
    dice = random.Random(f"{name} {seed}")
    while True:
        kind = dice.choice(_WHERE[name])
        training = TRAININGS[kind](dice)
        size = dice.choice((40, 64, 100, 2000))
        for _ in range(20):
            rank = dice.randrange(training.world)
            drawn = FAULTS[name](training, rank, dice)
            if drawn is None:
                continue
            culprits, kinds, engine = drawn
            made = FlightEngine(
                training.groups,
                engine.get("programs", training.programs),
                ring=ring or size,
                held=engine.get("held", ()),
                broken=engine.get("broken", ()),
            ).run()
            if made.hangs:
                return MadeFault(name, kind, training.world, made, frozenset(culprits), kinds)


Drawn = tuple[set[int], tuple[str, ...], dict[str, Any]] | None


def _stall(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, (GroupCall, PeerCall, BatchCall))
    return {rank}, ("cpu-stall", "missing-rank"), {"programs": changed(training.programs, rank, at, CpuStall(), cut=0)}


def _left_out(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, (GroupCall, BatchCall))
    if isinstance(training.programs[rank][at], BatchCall) and _moves(training.programs[rank][at]):
        return None
    return {rank}, LEFT_OUT, {"programs": changed(training.programs, rank, at)}


def _wrong_collective(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, GroupCall)
    call = training.programs[rank][at]
    assert isinstance(call, GroupCall)
    if call.op == "broadcast":
        return None
    wrong = replace(call, op="broadcast", outputs=call.inputs, line=777, root=0)
    return {rank}, ("wrong-collective",), {"programs": changed(training.programs, rank, at, wrong)}


def _size(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, GroupCall)
    call = training.programs[rank][at]
    assert isinstance(call, GroupCall)
    if not call.inputs or call.op.startswith("all_to_all"):
        return None
    return {rank}, ("size",), {"programs": changed(training.programs, rank, at, resized(call, 3))}


def _dtype(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, GroupCall)
    call = training.programs[rank][at]
    assert isinstance(call, GroupCall)
    if not call.inputs or call.op.startswith("all_to_all"):
        return None
    return {rank}, ("dtype",), {"programs": changed(training.programs, rank, at, replace(call, dtype="Half"))}


def _order(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    program = training.programs[rank]
    at = _late(program[:-1], dice, GroupCall)
    first, second = program[at], program[at + 1]
    if not isinstance(second, GroupCall) or first == second:
        return None
    kinds = ("order", "wrong-collective", "size", "dtype")
    return {rank}, kinds, {"programs": changed(training.programs, rank, at, second, first, cut=2)}


def _transfer_left_out(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, (PeerCall, BatchCall))
    if at < 0 or not _moves(training.programs[rank][at]):
        return None
    return {rank}, ("p2p", "missing-rank", "cpu-stall", "order"), {"programs": changed(training.programs, rank, at)}


def _transfer_size(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, (PeerCall, BatchCall))
    if at < 0 or not _moves(step := training.programs[rank][at]):
        return None
    if isinstance(step, PeerCall):
        wrong: PeerCall | BatchCall = replace(step, shape=(step.shape[0] + 1, *step.shape[1:]))
    else:
        assert isinstance(step, BatchCall)
        parts = tuple(replace(part, shape=(9, 256)) for part in step.parts if isinstance(part, PeerCall))
        wrong = replace(step, parts=parts)
    return {rank}, ("p2p", "size"), {"programs": changed(training.programs, rank, at, wrong)}


def _both_send(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    """Two neighbours each send before they receive, one by one: both are to blame, or none."""
    program = training.programs[rank]
    at = _late(program, dice, PeerCall)
    if at < 0:
        return None
    step = program[at]
    assert isinstance(step, PeerCall)
    again = replace(step, op="send")
    peer = step.peer
    spots = [
        place for place, one in enumerate(training.programs[peer]) if isinstance(one, PeerCall) and one.peer == rank
    ]
    nth = [place for place, one in enumerate(program) if isinstance(one, PeerCall) and one.peer == peer].index(at)
    half = training.programs[peer][spots[nth]]
    assert isinstance(half, PeerCall)
    programs = changed(training.programs, rank, at, again, replace(again, op="recv"))
    programs = changed(programs, peer, spots[nth], replace(half, op="send"), replace(half, op="recv"))
    return {rank, peer}, ("p2p", "order"), {"programs": programs}


def _batch(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    at = _late(training.programs[rank], dice, BatchCall)
    step = training.programs[rank][at]
    assert isinstance(step, BatchCall)
    parts = list(step.parts)
    if dice.random() < 0.5:
        parts.pop(dice.randrange(len(parts)))
    else:
        parts.reverse()
    wrong = replace(step, parts=tuple(parts))
    return {rank}, ("coalesced", "size", "order"), {"programs": changed(training.programs, rank, at, wrong)}


def _exchange(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    program = training.programs[rank]
    places = [place for place, one in enumerate(program) if isinstance(one, GroupCall) and one.op == "all_to_all"]
    at = dice.choice(places[len(places) // 2 :])
    call = program[at]
    assert isinstance(call, GroupCall)
    wrong = replace(call, outputs=((384, 64),))
    return {rank}, ("all-to-all",), {"programs": changed(training.programs, rank, at, wrong)}


def _gpu(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    calls = [one for one in training.programs[rank] if not isinstance(one, (CpuWait, CpuStall))]
    number = dice.randrange(len(calls) // 2, len(calls))
    if not isinstance(calls[number], GroupCall):
        return None
    return {rank}, ("gpu-stall",), {"held": [(rank, number)]}


def _link(training: MadeTraining, rank: int, dice: random.Random) -> Drawn:
    group = dice.choice([key for key, pg in training.groups.items() if rank in pg.ranks])
    return set(), ("unknown",), {"broken": [(group, dice.randrange(6, 10))]}


FAULTS: dict[str, Callable[[MadeTraining, int, random.Random], Drawn]] = {
    "cpu stall": _stall,
    "call left out": _left_out,
    "wrong collective": _wrong_collective,
    "size": _size,
    "type": _dtype,
    "order": _order,
    "transfer left out": _transfer_left_out,
    "transfer size": _transfer_size,
    "both send": _both_send,
    "batch": _batch,
    "all-to-all": _exchange,
    "gpu stall": _gpu,
    "broken link": _link,
}
_EVERY = tuple(TRAININGS)
_WHERE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(FAULTS, _EVERY),
    "transfer left out": ("3d", "pipeline"),
    "transfer size": ("3d", "pipeline"),
    "both send": ("3d",),
    "batch": ("moe",),
    "all-to-all": ("moe",),
}


def _late(program: Program, dice: random.Random, kinds: type | tuple[type, ...]) -> int:
    """Return a place of such a step in the later half of a program, -1 where there is none."""
    places = [place for place, step in enumerate(program) if isinstance(step, kinds)]
    return dice.choice(places[len(places) // 2 :]) if places else -1


def _moves(step: object) -> bool:
    return isinstance(step, PeerCall) or (isinstance(step, BatchCall) and isinstance(step.parts[0], PeerCall))


def _reduce(group: str, shape: Shape, line: int, *, asynchronous: bool = False) -> GroupCall:
    return GroupCall(group, "all_reduce", (shape,), (shape,), "Float", line, asynchronous)


def _broadcast(group: str, shape: Shape, line: int) -> GroupCall:
    return GroupCall(group, "broadcast", (shape,), (shape,), "Float", line, root=0)


def _gather(group: str, size: int, members: int, line: int) -> GroupCall:
    return GroupCall(group, "_all_gather_base", ((size,),), ((size * members,),), "BFloat16", line)


def _scatter(group: str, size: int, members: int, line: int) -> GroupCall:
    return GroupCall(group, "_reduce_scatter_base", ((size * members,),), ((size,),), "BFloat16", line)
