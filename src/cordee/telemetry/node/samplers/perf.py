"""Instructions per cycle of each rank, from the processor's own counters where the kernel lets us have them."""

from __future__ import annotations

import errno
import os
import struct
from typing import Iterable, Mapping, NamedTuple, Optional

from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.tree import TreeLook

_NAME = "instructions_per_cycle"
# perf_event_open(2): number of the call, types and flags of struct perf_event_attr (linux/perf_event.h).
_CALLS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241}
_ATTRIBUTES_BYTES = 112
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_TIMES = 1 | 2
_CLOSE_ON_EXEC = 8
HARDWARE, SOFTWARE = 0, 1
CYCLES, INSTRUCTIONS = 0, 1
_READING = struct.Struct("<QQQ")
_MOST_THREADS = 64


class NoCounter(Exception):
    """The kernel gives no counter; the text says why."""


class Counter:
    """One event of a thread and of all threads and processes that it starts from now on, in user mode.

    Args:
        tid: the thread.
        kind, event: `HARDWARE` and `CYCLES` or `INSTRUCTIONS`; of `SOFTWARE` as linux/perf_event.h counts them.

    Raises:
        NotAllowed: there is no such counter here, or not for us.
    """

    def __init__(self, tid: int, kind: int, event: int) -> None:
        import ctypes  # many nodes never come here, and it takes as long to import as all else

        number = _CALLS.get(os.uname().machine)
        if number is None:
            raise NoCounter(f"perf events of {os.uname().machine} are not known")
        flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
        attributes = struct.pack("<IIQQQQQ", kind, _ATTRIBUTES_BYTES, event, 0, 0, _TIMES, flags)
        buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
        call = ctypes.CDLL(None, use_errno=True).syscall
        self.descriptor: int = call(number, buffer, tid, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if self.descriptor < 0:
            raise NoCounter(_why(ctypes.get_errno()))

    def read(self) -> Optional[float]:
        """Return the count so far, scaled up where others had the counter for a part of the time; None: it never ran."""
        try:
            count, enabled, running = _READING.unpack(os.read(self.descriptor, _READING.size))
        except (OSError, struct.error):
            return None
        if running == 0:
            return 0.0 if enabled == 0 else None
        return float(count * enabled / running)

    def close(self) -> None:
        """Give the counter back."""
        os.close(self.descriptor)


class _Rank(NamedTuple):
    pid: int
    counters: list[tuple[Counter, Counter]]


class InstructionsPerCycle(RankPart):
    """Instructions over cycles, in user mode, of the threads that a rank has when it is first seen and all they start.

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str = "/proc") -> None:
        super().__init__()
        self._proc = proc
        self._ranks: dict[int, _Rank] = {}
        self._before: dict[int, tuple[float, float]] = {}
        self._refused = why_not()

    def metrics(self) -> list[dict[str, str]]:
        """Return the one metric; none where perf events are not allowed."""
        return [] if self._refused else [described(_NAME, "perf_event_open")]

    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[TreeLook]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the ratio of each rank."""
        if self._refused:
            self.missing = {_NAME: self._refused}
            return {rank: [] for rank in looks}
        self.missing = {}
        for rank in [rank for rank, known in self._ranks.items() if roots.get(rank) != known.pid or not looks[rank]]:
            self._drop(rank)
        return {rank: [self._of(rank, roots[rank], look)] for rank, look in looks.items() if look is not None}

    def close(self) -> None:
        """Give all counters back."""
        for rank in list(self._ranks):
            self._drop(rank)

    def _of(self, rank: int, pid: int, look: TreeLook) -> float:
        if rank not in self._ranks:
            try:
                self._ranks[rank] = _Rank(pid, _attach(_threads(self._proc, look.members)))
            except NoCounter as error:
                self._ranks[rank] = _Rank(pid, [])
                self.missing[_NAME] = str(error)
                return NAN
        cycles = instructions = 0.0
        for pair in self._ranks[rank].counters:
            counted = (pair[0].read(), pair[1].read())
            if counted[0] is None or counted[1] is None:
                self.missing[_NAME] = "other programs hold the processor's counters"
                return NAN
            cycles, instructions = cycles + counted[0], instructions + counted[1]
        before = self._before.get(rank)
        self._before[rank] = (cycles, instructions)
        if before is None or cycles <= before[0]:
            self.missing[_NAME] = FIRST if before is None else "the rank used no cycles in user mode"
            return NAN
        return max(0.0, instructions - before[1]) / (cycles - before[0])

    def _drop(self, rank: int) -> None:
        self._before.pop(rank, None)
        for pair in self._ranks.pop(rank).counters:
            for counter in pair:
                counter.close()


def why_not() -> str:
    """Return why the processor's counters cannot be had here, empty when they can: tried on this process."""
    try:
        for pair in _attach([os.getpid()]):
            for counter in pair:
                counter.close()
    except NoCounter as error:
        return str(error)
    return ""


def _attach(tids: Iterable[int]) -> list[tuple[Counter, Counter]]:
    """Return counters of cycles and instructions for each thread; one that ended meanwhile has none."""
    found: list[tuple[Counter, Counter]] = []
    refused: Optional[NoCounter] = None
    for tid in tids:
        opened: list[Counter] = []
        try:
            for event in (CYCLES, INSTRUCTIONS):
                opened.append(Counter(tid, HARDWARE, event))
            found.append((opened[0], opened[1]))
        except NoCounter as error:
            refused = error
            for counter in opened:
                counter.close()
    if refused is not None and not found:
        raise refused
    return found


def _threads(proc: str, pids: Iterable[int]) -> list[int]:
    tids: list[int] = []
    for pid in pids:
        try:
            tids += [int(name) for name in os.listdir(f"{proc}/{pid}/task") if name.isdigit()]
        except OSError:
            continue
    if len(tids) > _MOST_THREADS:
        raise NoCounter(
            f"the rank had {len(tids)} threads already when it was first seen, {_MOST_THREADS} are followed"
        )
    return tids


def _why(number: int) -> str:
    if number in (errno.EACCES, errno.EPERM):
        return "perf events are not allowed here (kernel.perf_event_paranoid, or a container's seccomp filter)"
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this processor, or the virtual machine, shows no counters of cycles and instructions"
    return f"perf_event_open: {os.strerror(number)}"
