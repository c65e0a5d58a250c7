"""Flight Recorder dumps of trainings that never ran: programs of ranks, carried out as ProcessGroupNCCL would.

Each rank has a program: collectives, sends and receives, batches of them, points where its CPU waits for its GPU. A call is
enqueued by the CPU, which runs ahead; it starts when it is the first of its communicator on this rank and what the compute
stream waits for has ended; it ends when the calls of all members (of both ranks, for a transfer) have started and agree. What
can go no further hangs, and each rank's recorder holds its last calls with the states that they have reached. Written from the
published semantics and the recorder's format 2.10; faults are changes of one rank's program.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

Shape = tuple[int, ...]
_EPOCH_NS = 1_795_000_000_000_000_000
_CALL_NS = 1_000_000
_TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


@dataclass(frozen=True)
class GroupCall:
    """A collective: `group` by name; the shapes of its tensors; from which line; whether later work waits for it."""

    group: str
    op: str
    inputs: tuple[Shape, ...] = ((1,),)
    outputs: tuple[Shape, ...] = ((1,),)
    dtype: str = "Float"
    line: int = 1
    asynchronous: bool = False
    root: int | None = None


@dataclass(frozen=True)
class PeerCall:
    """A send or a receive; `peer` is a rank of the world."""

    group: str
    op: str
    peer: int
    shape: Shape = (1,)
    dtype: str = "BFloat16"
    line: int = 1


@dataclass(frozen=True)
class BatchCall:
    """Coalesced calls: collectives of one group, or transfers."""

    group: str
    parts: tuple[GroupCall | PeerCall, ...]
    line: int = 1


@dataclass(frozen=True)
class CpuWait:
    """The CPU waits until everything that it has enqueued has ended, as `loss.item()` does."""


@dataclass(frozen=True)
class CpuStall:
    """The CPU goes no further: a data loader, a loop, a file system."""


Step = GroupCall | PeerCall | BatchCall | CpuWait | CpuStall
Program = list[Step]


class PG(NamedTuple):
    """A process group, as `pg_config` has it."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass
class _Enqueued:
    """A call on a rank's GPU."""

    rank: int
    step: GroupCall | PeerCall | BatchCall
    channel: tuple[Any, ...]
    needs: list[_Enqueued]
    seq: int
    p2p_seq: int
    op_id: int
    record: int
    time: int
    started: bool = False
    completed: bool = False
    held: bool = False


@dataclass
class MadeDumps:
    """What a simulated training left: entries and groups of each rank."""

    groups: dict[str, PG]
    entries: dict[int, list[dict[str, Any]]]
    hangs: bool = False
    config: dict[int, dict[str, Any]] = field(default_factory=dict)

    def dump(self, rank: int) -> dict[str, Any]:
        """Return one rank's dump as PyTorch builds it."""
        status = {"last_enqueued_collective": 0, "last_started_collective": 0, "last_completed_collective": 0}
        return {
            "version": "2.10",
            "pg_config": self.config[rank],
            "comm_lib_version": "2.27.3",
            "pg_status": {"0": status},
            "entries": self.entries[rank],
        }

    def write(self, folder: Path, *, without: Iterable[int] = (), form: str = "rank-{}.pkl") -> None:
        """Write the dumps of all ranks but some, as pickles or, by their name, JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in set(self.entries) - set(without):
            write_dump(folder / form.format(rank), self.dump(rank))


def write_dump(path: Path, dump: Mapping[str, Any]) -> None:
    """Write a dump as PyTorch does: protocol 2, or JSON without stacks."""
    if path.suffix == ".json":
        bare = [
            {key: value for key, value in entry.items() if key != "frames"}
            | {key: entry[key] or 0 for key in ("time_discovered_started_ns", "time_discovered_completed_ns")}
            for entry in dump["entries"]
        ]
        path.write_text(json.dumps({**dump, "entries": bare}))
    else:
        path.write_bytes(pickle.dumps(dict(dump), protocol=2))


class FlightEngine:
    """Carries programs out until nothing moves.

    Args:
        groups: by the name that programs use.
        programs: by rank.
        ring: how many entries a recorder holds.
        ahead: how many calls a CPU may be ahead of its GPU.
        held: calls, as (rank, number of the rank's call), whose kernel never gets its turn on the GPU.
        broken: (group, sequence number) of collectives that never end although all ranks have called them.
        library: `nccl`, or one that names its entries alike.
    """

    def __init__(
        self,
        groups: Mapping[str, PG],
        programs: Mapping[int, Program],
        *,
        ring: int = 100,
        ahead: int = 50,
        held: Iterable[tuple[int, int]] = (),
        broken: Iterable[tuple[str, int]] = (),
        timing: bool = True,
        library: str = "nccl",
    ) -> None:
        self.groups = dict(groups)
        self.programs = programs
        self.ring = ring
        self.ahead = ahead
        self.held = set(held)
        self.broken = set(broken)
        self.timing = timing
        self.library = library
        self._at = dict.fromkeys(programs, 0)
        self._clock = dict.fromkeys(programs, 0)
        self._queues: dict[int, dict[tuple[Any, ...], deque[_Enqueued]]] = {rank: {} for rank in programs}
        self._open: dict[int, deque[_Enqueued]] = {rank: deque() for rank in programs}
        self._all: dict[int, list[_Enqueued]] = {rank: [] for rank in programs}
        self._counts: dict[tuple[int, str, str], int] = {}
        self._records = dict.fromkeys(programs, 0)

    def run(self) -> MadeDumps:
        """Return what the recorders hold when nothing moves any more."""
        moved = True
        while moved:
            moved = bool(sum(self._advance(rank) for rank in self.programs))
            moved = self._start() or moved
            moved = self._complete() or moved
        hangs = any(not one.completed for each in self._all.values() for one in each)
        config = {
            rank: {
                pg.name: {"name": pg.name, "desc": pg.desc, "ranks": str(list(pg.ranks))}
                for pg in self.groups.values()
                if rank in pg.ranks
            }
            for rank in self.programs
        }
        entries = {
            rank: [entry for one in each for entry in self._recorded(one)][-self.ring :]
            for rank, each in self._all.items()
        }
        return MadeDumps(self.groups, entries, hangs, config)

    def _advance(self, rank: int) -> bool:
        """Let a CPU enqueue as far as it can."""
        program, moved = self.programs[rank], False
        while self._at[rank] < len(program):
            step = program[self._at[rank]]
            waiting = self._open[rank]
            while waiting and waiting[0].completed:
                waiting.popleft()
            if isinstance(step, CpuStall) or (isinstance(step, CpuWait) and any(not one.completed for one in waiting)):
                break
            if len(waiting) >= self.ahead:
                break
            if not isinstance(step, CpuWait):
                self._enqueue(rank, step)
            self._at[rank] += 1
            moved = True
        return moved

    def _enqueue(self, rank: int, step: GroupCall | PeerCall | BatchCall) -> None:
        transfers = isinstance(step, PeerCall) or (isinstance(step, BatchCall) and isinstance(step.parts[0], PeerCall))
        counter = "p2p" if transfers else "seq"
        self._count(rank, step.group, counter)
        pair = tuple(sorted((rank, step.peer))) if isinstance(step, PeerCall) else ()
        channel = (step.group, "pair", *pair) if pair else (step.group,)
        needs = [one for one in self._open[rank] if not (isinstance(one.step, GroupCall) and one.step.asynchronous)]
        parts = len(step.parts) + 1 if isinstance(step, BatchCall) else 1
        self._clock[rank] += _CALL_NS
        made = _Enqueued(
            rank,
            step,
            channel,
            needs[-1:],
            self._counts.get((rank, step.group, "seq"), 0),
            self._counts.get((rank, step.group, "p2p"), 0),
            self._count(rank, step.group, "op", parts),
            self._records[rank],
            self._clock[rank],
            held=(rank, len(self._all[rank])) in self.held,
        )
        self._records[rank] += parts
        self._queues[rank].setdefault(channel, deque()).append(made)
        self._open[rank].append(made)
        self._all[rank].append(made)

    def _count(self, rank: int, group: str, what: str, by: int = 1) -> int:
        self._counts[rank, group, what] = self._counts.get((rank, group, what), 0) + by
        return self._counts[rank, group, what]

    def _start(self) -> bool:
        moved = False
        for queues in self._queues.values():
            for queue in queues.values():
                head = queue[0] if queue else None
                if head and not head.started and not head.held and all(one.completed for one in head.needs):
                    head.started = moved = True
        return moved

    def _complete(self) -> bool:
        moved = False
        for rank, queues in self._queues.items():
            for channel, queue in list(queues.items()):
                if queue and queue[0].started:
                    moved = self._end(rank, channel, queue[0]) or moved
        return moved

    def _end(self, rank: int, channel: tuple[Any, ...], head: _Enqueued) -> bool:
        step = head.step
        if isinstance(step, PeerCall):
            return self._end_together([rank, step.peer], channel, head, self._agree_move)
        if isinstance(step, BatchCall) and isinstance(step.parts[0], PeerCall):
            peers = sorted({rank, *(part.peer for part in step.parts if isinstance(part, PeerCall))})
            return self._end_batch(peers, channel)
        if (step.group, head.seq) in self.broken:
            return False
        return self._end_together(self.groups[step.group].ranks, channel, head, self._agree_call)

    def _end_together(self, ranks: Sequence[int], channel: tuple[Any, ...], head: _Enqueued, agree: Any) -> bool:
        heads = [self._head(rank, channel) for rank in ranks]
        there = [one for one in heads if one is not None and one.started]
        if len(there) < len(heads) or not agree(there):
            return False
        for one in there:
            self._finish(one)
        return True

    def _end_batch(self, ranks: Sequence[int], channel: tuple[Any, ...]) -> bool:
        """End the batches of transfers that together need nobody else."""
        found: dict[int, _Enqueued] = {}
        wanted = list(ranks)
        while wanted:
            rank = wanted.pop()
            if rank in found:
                continue
            head = self._head(rank, channel)
            if head is None or not head.started or not isinstance(head.step, BatchCall):
                return False
            found[rank] = head
            wanted += [part.peer for part in head.step.parts if isinstance(part, PeerCall)]
        moves = [(rank, part) for rank, head in found.items() for part in head.step.parts]  # type: ignore[union-attr]
        sends = sorted((rank, part.peer, part.shape, part.dtype) for rank, part in moves if part.op == "send")  # type: ignore[union-attr]
        recvs = sorted((part.peer, rank, part.shape, part.dtype) for rank, part in moves if part.op == "recv")  # type: ignore[union-attr]
        if sends != recvs:
            return False
        for head in found.values():
            self._finish(head)
        return True

    def _head(self, rank: int, channel: tuple[Any, ...]) -> _Enqueued | None:
        queue = self._queues.get(rank, {}).get(channel)
        return queue[0] if queue else None

    def _finish(self, one: _Enqueued) -> None:
        one.completed = True
        self._queues[one.rank][one.channel].popleft()

    def _agree_move(self, heads: list[_Enqueued]) -> bool:
        first, second = (one.step for one in heads)
        return (
            isinstance(first, PeerCall)
            and isinstance(second, PeerCall)
            and {first.op, second.op} == {"send", "recv"}
            and (prod(first.shape), first.dtype) == (prod(second.shape), second.dtype)
        )

    def _agree_call(self, heads: list[_Enqueued]) -> bool:
        if any(isinstance(one.step, PeerCall) for one in heads):
            return False
        parts = [one.step.parts if isinstance(one.step, BatchCall) else (one.step,) for one in heads]
        if len({len(each) for each in parts}) > 1 or len({isinstance(one.step, BatchCall) for one in heads}) > 1:
            return False
        return all(_agree(calls) for calls in zip(*parts, strict=True))

    def _recorded(self, one: _Enqueued) -> Iterator[dict[str, Any]]:
        """Yield the recorder's entries of a call: of a batch its parts, which have no state, and its end."""
        step = one.step
        if not isinstance(step, BatchCall):
            yield self._entry(one, step, 0, True)
            return
        for number, part in enumerate(step.parts):
            yield self._entry(one, part, number, False)
        yield self._entry(one, step, len(step.parts), True)

    def _entry(
        self, one: _Enqueued, what: GroupCall | PeerCall | BatchCall, number: int, tracked: bool
    ) -> dict[str, Any]:
        pg = self.groups[what.group]
        transfers = isinstance(what, PeerCall) or (isinstance(what, BatchCall) and isinstance(what.parts[0], PeerCall))
        state = "scheduled"
        if tracked and one.completed:
            state = "completed"
        elif tracked and one.started and self.timing:
            state = "started"
        inputs, outputs, name = _described(what, one.rank, pg)
        types = (
            ([what.dtype] * bool(inputs), [what.dtype] * bool(outputs)) if not isinstance(what, BatchCall) else ([], [])
        )
        time = _EPOCH_NS + one.time
        return {
            "frames": [
                {"name": name, "filename": _TORCH, "line": 1000},
                {"name": "train_step", "filename": "/home/ada/train.py", "line": what.line},
                {"name": "main", "filename": "/home/ada/train.py", "line": 900},
            ],
            "record_id": one.record + number,
            "pg_id": list(self.groups).index(what.group),
            "process_group": (pg.name, pg.desc),
            "thread_name": "pt_main_thread",
            "thread_id": "140421013433216",
            "collective_seq_id": one.seq,
            "p2p_seq_id": one.p2p_seq,
            "op_id": one.op_id + number,
            "profiling_name": f"{self.library}:{name}",
            "time_created_ns": time,
            "input_sizes": [list(shape) for shape in inputs],
            "input_dtypes": types[0],
            "output_sizes": [list(shape) for shape in outputs],
            "output_dtypes": types[1],
            "state": state,
            "time_discovered_started_ns": time + 1000 if tracked and one.started and self.timing else None,
            "time_discovered_completed_ns": time + 2000 if state == "completed" else None,
            "retired": state == "completed",
            "timeout_ms": 600000,
            "is_p2p": transfers,
        }


def _described(
    what: GroupCall | PeerCall | BatchCall, rank: int, pg: PG
) -> tuple[tuple[Shape, ...], tuple[Shape, ...], str]:
    """Return inputs, outputs and the recorder's name of a call."""
    if isinstance(what, BatchCall):
        return (), (), "coalesced"
    if isinstance(what, PeerCall):
        own, peer = pg.ranks.index(rank), pg.ranks.index(what.peer)
        arrow = f"send {own}->{peer}" if what.op == "send" else f"recv {own}<-{peer}"
        return (what.shape,), (what.shape,), arrow
    return what.inputs, what.outputs, what.op


def _agree(calls: Sequence[Any]) -> bool:
    """Return whether NCCL would carry out what ranks have called."""
    if (
        any(isinstance(call, PeerCall) for call in calls)
        or len({(call.op, call.dtype, call.root) for call in calls}) > 1
    ):
        return False
    sent = [sum(map(prod, call.inputs)) for call in calls]
    got = [sum(map(prod, call.outputs)) for call in calls]
    match calls[0].op:
        case "all_to_all":
            return sum(sent) == sum(got)
        case "gather":
            return len(set(sent)) == 1 and max(got) == sum(sent)
        case "scatter":
            return len(set(got)) == 1 and max(sent) == sum(got)
    return len(set(sent)) == 1 and len(set(got)) == 1


def changed(programs: Mapping[int, Program], rank: int, at: int, *steps: Step, cut: int = 1) -> dict[int, Program]:
    """Return programs with `cut` steps of one rank's replaced by others."""
    program = programs[rank]
    return {**programs, rank: [*program[:at], *steps, *program[at + cut :]]}


def resized(call: GroupCall, factor: int) -> GroupCall:
    """Return a call with larger tensors."""
    return replace(
        call,
        inputs=tuple((shape[0] * factor, *shape[1:]) for shape in call.inputs),
        outputs=tuple((shape[0] * factor, *shape[1:]) for shape in call.outputs),
    )
