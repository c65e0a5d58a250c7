"""What a rank's interpreter shows of itself, once a second, in a small memory-mapped file that its agent reads.

The rank writes its words, each as one aligned 64-bit store, and a table of its process groups between two increments of a
sequence word; the agent writes the words by which it asks for the Flight Recorder's dump and for a trace, and has the rank's time
looked at, which is told as sums that only grow. A reader trusts nothing in it.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
import zlib
from typing import Any, NamedTuple, Optional, Sequence

from cordee.machine.foreign_files import regular

FOLDER = "CORDEE_PULSE"  # the variable that names the folder of a node's pulse files
MAGIC = int.from_bytes(b"pulse\0\r\n", "little")
VERSION = 2
PULSE_BYTES = 8192
SUFFIX, DUMP, STACKS = ".pulse", ".flight", ".stacks"
WAKE = ".wake"  # a FIFO: a byte in it has the rank look at once for what it is asked
TRACE, TRACED = ".trace.json", ".traced"  # what torch.profiler wrote, and what the rank says of it
MOST_GROUPS = 64
# Words, as indices of 64-bit words; the agent's share no cache line with the rank's.
_MAGIC, _VERSION, _PID, _RANK, _SIGNAL, _FLAGS = range(6)
_BEATS, _BEAT_NS, _OPTIMIZER_STEPS, _MOVES, _DUMPED, _SEQUENCE, _TABLE_BYTES, _TABLE_CRC = range(8, 16)
# The agent's words; of a trace four, the number of the order last.
_ASKED, _WANTED, _TRACE_ORDER = 24, 25, 26
_WINDOW, _LOOKED_NS, _DELAYED_NS, _UNSEEN_NS, _FAULTS = range(32, 37)
_KINDS, _PER_KIND = 37, 4
_TRACE_ANSWER = 56
_TABLE, _WHERE = 512, 7680
KINDS = ("compute", "data", "communication", "saving")
_WORD = struct.Struct("<Q")
_TEXT = struct.Struct("<II")  # how long it is, and its check sum
_WHERE_BYTES = PULSE_BYTES - _WHERE - _TEXT.size
_TIMES = struct.Struct(f"={_KINDS - _WINDOW + _PER_KIND * len(KINDS)}Q")
_ELASTIC = 1
_TRIES = 5


class GroupProgress(NamedTuple):
    """A process group as one rank sees it: the last collective that it has called, and the last that has ended (-1: none)."""

    name: str
    size: int
    enqueued: int
    completed: int


class KindSums(NamedTuple):
    """How long a rank has been at one kind of work; `longest_ns` is that of the window, the others are of its life."""

    ns: int = 0
    looks: int = 0
    longest_ns: int = 0
    squares_ms2: int = 0


class TimeSums(NamedTuple):
    """What a rank has done with its time while it was looked at; see `cordee.wire.messages.RankDigest`.

    Attributes:
        window: the number that the agent wrote last and the rank has seen; 0: it looks no more.
        looked_ns: the time that was looked at.
        delayed_ns, unseen_ns, faults: as a digest has them.
        kinds: the sums of each of `KINDS`.
    """

    window: int = 0
    looked_ns: int = 0
    delayed_ns: int = 0
    unseen_ns: int = 0
    faults: int = 0
    kinds: tuple[KindSums, ...] = (KindSums(),) * len(KINDS)


class Pulse(NamedTuple):
    """What one process of a rank showed last.

    Attributes:
        pid: its own, in its PID namespace.
        rank: as torch.distributed or its environment has it.
        signal: what makes it write its stacks; 0: nothing does.
        elastic: whether an elastic launcher started it as a worker.
        beats: how often its thread has run; beat_ns: when, CLOCK_MONOTONIC.
        optimizer_steps: of all optimizers.
        moves: how often its main thread stood elsewhere than the time before.
        dumped: the last number by which it was asked for a dump and has written one.
        times: what it has done with its time.
    """

    pid: int
    rank: int
    signal: int
    elastic: bool
    beats: int
    beat_ns: int
    optimizer_steps: int
    moves: int
    dumped: int
    groups: tuple[GroupProgress, ...]
    times: TimeSums = TimeSums()


class TraceOrder(NamedTuple):
    """A trace of so many steps of an optimizer, or of so many milliseconds; `number` 0: none, or none any more.

    Attributes:
        begin_ms: UTC; steps are traced from the first one on that begins after this, so that all ranks trace the same.
        patience_ms: it is given up after so long.
        extras: the sum of some of `EXTRAS`.
    """

    steps: int
    window_ms: int
    begin_ms: int
    patience_ms: int
    extras: int
    number: int


EXTRAS = {"shapes": 1, "stacks": 2, "memory": 4}
NO_TRACE, ARMED, TRACING, TRACED_WHOLE, NOT_TRACED = range(5)


class TraceAnswer(NamedTuple):
    """What has become of an order: one of the states above, the steps that were traced, and how many the process had made before."""

    state: int
    steps: int
    before: int
    number: int


class PulseWriter:
    """The rank's end; the file appears under its name once it is whole.

    Args:
        folder: where agent and ranks leave files for each other.
        attempt: of the run.
        elastic: whether an elastic launcher started this process.

    Attributes:
        path: of the file; the dump and the stacks lie beside it, with another ending.

    Raises:
        OSError: the folder is missing or full.
    """

    def __init__(self, folder: str, attempt: str, elastic: bool) -> None:
        stem = f"{attempt}-{os.urandom(4).hex()}-{os.getpid()}"
        hidden = os.path.join(folder, f".{stem}")
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, PULSE_BYTES)
        except OSError:
            os.close(descriptor)
            os.unlink(hidden)
            raise
        self.path = os.path.join(folder, stem + SUFFIX)
        try:
            self._map = mmap.mmap(descriptor, PULSE_BYTES)
        finally:
            os.close(descriptor)
        self._view, self._line = memoryview(self._map), ""
        words = self._words = self._view.cast("Q")
        words[_VERSION], words[_PID], words[_FLAGS] = VERSION, os.getpid(), _ELASTIC if elastic else 0
        words[_MAGIC] = MAGIC
        os.rename(hidden, self.path)

    @property
    def asked(self) -> int:
        """The number of the dump that the agent asks for; 0 before the first."""
        return self._words[_ASKED]

    @property
    def wanted(self) -> int:
        """The number of the window for which the agent wants this rank's time looked at; 0: it does not."""
        return self._words[_WANTED]

    def spent(self, times: TimeSums, optimizer_steps: int) -> None:
        """Show what the rank has done with its time until now."""
        kinds = [amount for sums in times.kinds for amount in sums]
        self._words[_WINDOW : _KINDS + len(kinds)] = memoryview(_TIMES.pack(*times[:-1], *kinds)).cast("Q")
        self._words[_OPTIMIZER_STEPS] = optimizer_steps

    @property
    def trace_order(self) -> TraceOrder:
        """The trace that the agent asks for."""
        return TraceOrder(*self._words[_TRACE_ORDER : _TRACE_ORDER + len(TraceOrder._fields)])

    def traces(self, answer: TraceAnswer) -> None:
        """Say how far the trace is."""
        for at, word in enumerate(answer):
            self._words[_TRACE_ANSWER + at] = word

    def answers_to(self, number: int) -> None:
        """Say by which signal this process writes its stacks."""
        self._words[_SIGNAL] = number

    def dumped(self, asked: int) -> None:
        """Say that the dump that was asked for lies there."""
        self._words[_DUMPED] = asked

    def stands_at(self, line: str) -> None:
        """Show the line of code, as text, at which the main thread stands."""
        if line != self._line:
            self._line = line
            text = line.encode("utf-8", "replace")[-_WHERE_BYTES:]
            self._view[_WHERE : _WHERE + _TEXT.size + len(text)] = _TEXT.pack(len(text), zlib.crc32(text)) + text

    def beat(
        self, at_ns: int, rank: int, optimizer_steps: int, moves: int, groups: Optional[Sequence[GroupProgress]]
    ) -> None:
        """Show how far the rank is; of groups None: as they were."""
        words = self._words
        if groups is not None:
            table = json.dumps(groups[:MOST_GROUPS], separators=(",", ":")).encode()
            if len(table) > _WHERE - _TABLE:
                table = b"[]"
            words[_SEQUENCE] += 1
            self._view[_TABLE : _TABLE + len(table)] = table
            words[_TABLE_BYTES], words[_TABLE_CRC] = len(table), zlib.crc32(table)
            words[_SEQUENCE] += 1
        words[_RANK], words[_OPTIMIZER_STEPS], words[_MOVES] = rank, optimizer_steps, moves
        words[_BEAT_NS] = at_ns
        words[_BEATS] += 1


class PulseReader:
    """The agent's end, which maps nothing: a rank that cuts its file short must not end the agent. No method raises.

    Attributes:
        path: of the file.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no pulse of this version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = regular(path, os.O_RDWR | os.O_NOFOLLOW)
        words = self._words()
        if words is None or (words[_MAGIC], words[_VERSION]) != (MAGIC, VERSION):
            self.close()
            raise ValueError(f"{path} is no pulse of version {VERSION}")
        self._last = Pulse(words[_PID], words[_RANK], 0, False, 0, 0, 0, 0, 0, ())

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def read(self) -> Pulse:
        """Return what the process showed last; no groups where its table is not whole."""
        for _ in range(_TRIES):
            words = self._words()
            if words is None:
                break
            flags, table = bool(words[_FLAGS] & _ELASTIC), words.tobytes()[_TABLE:_WHERE][: words[_TABLE_BYTES]]
            is_whole = words[_SEQUENCE] % 2 == 0 and zlib.crc32(table) == words[_TABLE_CRC]
            self._last = Pulse(
                *(words[_PID], words[_RANK], words[_SIGNAL], flags, words[_BEATS], words[_BEAT_NS]),
                *(words[_OPTIMIZER_STEPS], words[_MOVES], words[_DUMPED]),
                _read_groups(table) if is_whole else (),
                _read_times(words),
            )
            if is_whole:
                break
        return self._last

    def stands_at(self) -> str:
        """Return the line of code at which the main thread was seen last; empty where it is not known."""
        words = self._words()
        if words is None:
            return ""
        length, check = _TEXT.unpack_from(words.cast("B"), _WHERE)
        text = words.tobytes()[_WHERE + _TEXT.size :][:length]
        return text.decode("utf-8", "replace") if zlib.crc32(text) == check else ""

    def ask(self, number: int) -> None:
        """Ask for the Flight Recorder's dump, and wake the rank's thread, where it can be woken."""
        self._put(_ASKED, number)
        try:
            wake = os.open(self.path[: -len(SUFFIX)] + WAKE, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if stat.S_ISFIFO(os.fstat(wake).st_mode):
                os.write(wake, b"\0")
        except OSError:  # it is full, so that the rank wakes anyway, or nobody reads it
            pass
        finally:
            os.close(wake)

    def want(self, window: int) -> None:
        """Have the rank's time looked at; another number than before begins another window, 0 ends it."""
        self._put(_WANTED, window)

    def _put(self, word: int, number: int) -> None:
        try:
            os.pwrite(self._descriptor, _WORD.pack(number), word * _WORD.size)
        except OSError:
            return

    def order_trace(self, order: TraceOrder) -> None:
        """Ask for a trace; one of the number 0 takes back what was asked for."""
        packed = [_WORD.pack(word) for word in order]
        try:
            os.pwrite(self._descriptor, b"".join(packed[:-1]), _TRACE_ORDER * _WORD.size)
            os.pwrite(self._descriptor, packed[-1], (_TRACE_ORDER + len(packed) - 1) * _WORD.size)
        except OSError:
            return

    def trace_answer(self) -> TraceAnswer:
        """Return how far the trace is that was asked for last; `NO_TRACE` where the file cannot be read."""
        words = self._words()
        if words is None:
            return TraceAnswer(NO_TRACE, 0, 0, 0)
        return TraceAnswer(*words[_TRACE_ANSWER : _TRACE_ANSWER + len(TraceAnswer._fields)])

    def _words(self) -> Optional[memoryview]:
        """Return what the file holds, None where it is too short."""
        try:
            content = os.pread(self._descriptor, PULSE_BYTES, 0)
        except OSError:
            return None
        return memoryview(content).cast("Q") if len(content) == PULSE_BYTES else None


def _read_times(words: memoryview) -> TimeSums:
    firsts = range(_KINDS, _KINDS + _PER_KIND * len(KINDS), _PER_KIND)
    kinds = tuple(KindSums(*words[first : first + _PER_KIND]) for first in firsts)
    window, looked_ns, delayed_ns, unseen_ns, faults = words[_WINDOW : _FAULTS + 1]
    return TimeSums(window, looked_ns, delayed_ns, unseen_ns, faults, kinds)


def _read_groups(table: bytes) -> tuple[GroupProgress, ...]:
    try:
        rows = json.loads(table or b"[]")
    except (ValueError, RecursionError):
        return ()
    found = [_read_group(row) for row in rows[:MOST_GROUPS]] if isinstance(rows, list) else []
    return tuple(group for group in found if group is not None)


def _read_group(row: Any) -> Optional[GroupProgress]:
    kinds = (str, int, int, int)
    if isinstance(row, list) and [type(value) for value in row] == list(kinds):
        return GroupProgress(row[0][:100], *row[1:])
    return None
