"""What ranks print, byte for byte: one framed file `logs/<node>-<segment>.log` per node and segment.

Where only the last bytes are kept, it goes on in `<node>-<segment>.<part>.log`, part 1 and so on, and the oldest parts go.

A frame is a 28-byte header, little-endian: magic u16, stream u8 (0 out, 1 err, 2 Cordée's own), flags u8, rank i32,
attempt u32, UTC time f64, data length u32, CRC-32 u32 over the rest of the header and the data. Data is at most 64 KiB.
"""

from __future__ import annotations

import heapq
import os
import struct
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional, Sequence, Union

from cordee.machine.foreign_files import regular_below

OUT, ERR, OWN = 0, 1, 2
LOST = 1  # flag: the data says how many bytes of this rank's output the disk refused

MAX_DATA_BYTES = 64 << 10
MAGIC = 0xC0DF

_CHECKED = struct.Struct("<HBBiIdI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _CHECKED.size + _CRC.size
_MAGIC_BYTES = struct.pack("<H", MAGIC)
_REPAIR_BYTES = 4 * MAX_DATA_BYTES
_READ_BYTES = 4 * MAX_DATA_BYTES
_LONGEST_LINE_BYTES = 16 << 20
_WRITE_BYTES = 1 << 20
_KEPT_PARTS = 4


class Frame(NamedTuple):
    """A piece of output; `end` is the offset behind it in its file, `file` that file's name."""

    time: float
    rank: int
    stream: int
    attempt: int
    flags: int
    data: bytes
    end: int
    file: str = ""

    @property
    def node(self) -> str:
        """The node whose agent wrote the frame."""
        return split_name(self.file)[0]


def split_name(name: str) -> tuple[str, int, int]:
    """Return (node, segment, part) of a log file's name; segment -1 for a name that is none."""
    stem = name[:-4] if name.endswith(".log") else name
    node, dash, rest = stem.rpartition("-")
    segment, _, part = rest.partition(".")
    return (
        (node, int(segment), int(part or 0))
        if dash and segment.isdigit() and (part or "0").isdigit()
        else (stem, -1, 0)
    )


class LogWriter:
    """Appends frames to one file; never raises for the disk's sake.

    A torn frame that a killed writer left at the end is cut off. Output that the disk refuses is lost and counted; as soon
    as there is room again a frame with the flag LOST says how much, in its rank's place.

    Args:
        path: the file, in a folder that exists; made when it is missing.
        at_once: open the file now, not with the first output.
        keep_bytes: how many of the last bytes stay, and at most a quarter more; None: all.

    Attributes:
        path: the file, or the part, that is written now.
        dropped_bytes: bytes of output lost so far.
        last_error: what the disk said last, None while all is well.
        size: bytes of whole frames in the file.
    """

    def __init__(self, path: Union[str, Path], *, at_once: bool = True, keep_bytes: Optional[int] = None) -> None:
        self._first = self.path = Path(path)
        self._part, self._keep_bytes = 0, keep_bytes
        self.dropped_bytes = 0
        self.last_error: Optional[OSError] = None
        self._descriptor: Optional[int] = None
        self.size = 0
        self._lost: dict[tuple[int, int], int] = {}
        self._time = 0.0
        self._ends_a_line = True
        if at_once:
            try:
                self._open()
            except OSError as error:
                self.last_error = error

    def write_many(self, output: Sequence[tuple[int, int, int, bytes, float]]) -> bool:
        """Write (rank, stream, attempt, data, time) of several, together as far as possible; return whether the file has all."""
        complete, at = True, 0
        while at < len(output):
            frames: list[bytes] = []
            size, begin = 0, at
            while at < len(output) and (not frames or size + len(output[at][3]) <= _WRITE_BYTES):
                rank, stream, attempt, data, time = output[at]
                frames += [
                    encode_frame(rank, stream, attempt, data[piece : piece + MAX_DATA_BYTES], time)
                    for piece in range(0, len(data), MAX_DATA_BYTES)
                ]
                size += len(data)
                at += 1
            try:
                self._open()
                self._roll(size)
                self._report_losses()
                self._append(b"".join(frames))
                self._ends_a_line = data.endswith(b"\n")
                self.last_error, self._time = None, output[at - 1][4]
            except OSError as error:
                self.last_error = error
                self._cut()
                for one in output[begin:at]:  # one by one, as much as there is room for
                    complete = self.write(*one) and complete
        return complete

    def write(self, rank: int, stream: int, attempt: int, data: bytes, time: float) -> bool:
        """Write output at once; return whether the file has all of it."""
        self._time = time
        written = 0
        try:
            self._open()
            self._report_losses()
            while written < len(data):
                piece = data[written : written + MAX_DATA_BYTES]
                self._append(encode_frame(rank, stream, attempt, piece, time))
                written += len(piece)
        except OSError as error:
            self.last_error = error
            self._cut()
            lost = len(data) - written
            self.dropped_bytes += lost
            self._lost[rank, attempt] = self._lost.get((rank, attempt), 0) + lost
            return False
        self.last_error = None
        return True

    def close(self) -> None:
        """Make the file durable and close it."""
        try:
            if self._lost:
                self._open()
                self._report_losses()
            if self._descriptor is not None:
                os.fsync(self._descriptor)
        except OSError as error:
            self.last_error = error
            self._cut()
        self._close_file()

    def _roll(self, more: int) -> None:
        """Go on in another file where this one is full, at the end of a line if there is one soon; the oldest go."""
        most = (self._keep_bytes or 0) // _KEPT_PARTS
        after = self.size + more
        if not most or not self.size or after <= most or (after <= 2 * most and not self._ends_a_line):
            return
        self._close_file()
        self._part += 1
        self.path = self._first.with_name(f"{self._first.stem}.{self._part}.log")
        self._open()
        gone = self._part - _KEPT_PARTS - 1
        with suppress(FileNotFoundError):
            self._first.with_name(f"{self._first.stem}.{gone}.log" if gone else self._first.name).unlink()

    def _go_on(self) -> None:
        """Find the part that another writer was at."""
        node, segment, _ = split_name(self._first.name)
        parts = [split_name(name) for name in os.listdir(self._first.parent) if name.endswith(".log")]
        self._part = max((part for of, at, part in parts if (of, at) == (node, segment)), default=0)
        if self._part:
            self.path = self._first.with_name(f"{self._first.stem}.{self._part}.log")

    def _report_losses(self) -> None:
        for rank, attempt in list(self._lost):
            reason = self.last_error.strerror if self.last_error else "the disk refused them"
            text = f"{self._lost[rank, attempt]} bytes of output were lost here: {reason}\n".encode()
            self._append(encode_frame(rank, OWN, attempt, text, self._time, LOST))
            del self._lost[rank, attempt]

    def _open(self) -> None:
        if self._descriptor is not None:
            if os.fstat(self._descriptor).st_nlink > 0:
                return
            self._close_file()
        if self._keep_bytes and not self._part:
            self._go_on()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = _whole_size(self._descriptor)
        os.ftruncate(self._descriptor, self.size)

    def _append(self, frame: bytes) -> None:
        assert self._descriptor is not None
        view = memoryview(frame)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self.size += len(frame)

    def _cut(self) -> None:
        """Take back a frame that was written in part; where that fails, reopening repairs the file."""
        if self._descriptor is not None:
            try:
                os.ftruncate(self._descriptor, self.size)
            except OSError:
                self._close_file()

    def _close_file(self) -> None:
        if self._descriptor is not None:
            try:
                os.close(self._descriptor)
            except OSError as error:
                self.last_error = error
            self._descriptor = None


def encode_frame(rank: int, stream: int, attempt: int, data: bytes, time: float, flags: int = 0) -> bytes:
    """Return one frame; `data` is at most `MAX_DATA_BYTES`."""
    checked = _CHECKED.pack(MAGIC, stream, flags, rank, attempt, time, len(data))
    return checked + _CRC.pack(_crc(checked, data)) + data


def read_frames(
    path: Union[str, Path], offset: int = 0, stop: Optional[int] = None, descriptor: Optional[int] = None
) -> Iterator[Frame]:
    """Yield the whole frames that begin in [offset, stop); damage is passed over, a torn tail ends the iteration.

    Call again with the last frame's `end` to go on while the file grows. The file is not kept open between reads.

    Args:
        descriptor: of the file, where the caller has it open.
    """
    name = os.path.basename(path)
    buffer, at, base, more = b"", 0, offset, True
    while stop is None or base + at < stop:
        size = _frame_size(buffer, at)
        if size > 0:
            yield _frame(buffer, at, size, base, name)
            at += size
        elif size == 0 and more:
            base, buffer, at = base + at, buffer[at:], 0
            piece = _read(path, base + len(buffer), descriptor)
            buffer, more = buffer + piece, len(piece) > 0
        else:
            found = buffer.find(_MAGIC_BYTES, at + 1)
            if found < 0 and not more:
                return
            at = found if found >= 0 else max(len(buffer) - 1, at + 1)


class OutputLine(NamedTuple):
    """A line of output without its line end; `time` is when it was finished, `ended` whether it had a line end."""

    time: float
    node: str
    rank: int
    stream: int
    attempt: int
    data: bytes
    ended: bool = True


class LineAssembler:
    """Puts frames together into lines, each rank's streams apart; a line longer than 16 MiB comes in pieces."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, int, int], _OpenLine] = {}

    def feed(self, frame: Frame) -> list[OutputLine]:
        """Return the lines that the frame finishes."""
        key = (frame.node, frame.rank, frame.stream, frame.attempt)
        first, *others = frame.data.split(b"\n")
        line = self._open.setdefault(key, _OpenLine())
        line.add(frame.time, first)
        if others:
            whole = [line.take(), *others[:-1]]
            line.add(frame.time, others[-1])
            return [OutputLine(frame.time, *key, data) for data in whole]
        return [OutputLine(frame.time, *key, line.take(), False)] if line.size > _LONGEST_LINE_BYTES else []

    def rest(self) -> list[OutputLine]:
        """Return what has no line end yet, and forget it."""
        left = [OutputLine(line.time, *key, line.take(), False) for key, line in self._open.items() if line.size]
        self._open.clear()
        return left


class _OpenLine:
    """The pieces of a line that has no end yet."""

    def __init__(self) -> None:
        self.time = 0.0
        self.size = 0
        self._pieces: list[bytes] = []

    def add(self, moment: float, piece: bytes) -> None:
        self.time = moment
        self.size += len(piece)
        self._pieces.append(piece)

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self.size, self._pieces = 0, []
        return data


class LogReader:
    """Reads the logs of all nodes and segments of a run, also while they grow.

    Args:
        folder: the run's `logs/` folder.
        places: returns the nodes that a rank has ever run on, so that only their files are read; all are without it.
    """

    def __init__(self, folder: Union[str, Path], places: Optional[Callable[[int], Sequence[str]]] = None) -> None:
        self.folder = Path(folder)
        self._places = places

    def files(self, node: Optional[str] = None, rank: Optional[int] = None) -> list[Path]:
        """Return the log files (of a node, of the nodes of a rank), by node and segment."""
        nodes = None if node is None else {node}
        if node is None and rank is not None and rank >= 0 and self._places is not None:
            nodes = set(self._places(rank)) or None
        try:
            names = [name for name in os.listdir(self.folder) if name.endswith(".log")]
        except OSError:
            return []
        names.sort(key=split_name)
        return [self.folder / name for name in names if nodes is None or split_name(name)[0] in nodes]

    def frames(
        self, rank: Optional[int] = None, node: Optional[str] = None, follow_from: Optional[dict[str, int]] = None
    ) -> Iterator[Frame]:
        """Yield frames of all files merged by time.

        Args:
            rank, node: only these.
            follow_from: offsets by file name to begin at; it is brought up to date as frames are taken, so the same
                dict gives what is new at the next call.
        """
        cursor = {} if follow_from is None else follow_from
        streams = [_keyed(path, index, cursor.get(path.name, 0)) for index, path in enumerate(self.files(node, rank))]
        for _, _, _, frame in heapq.merge(*streams):
            cursor[frame.file] = frame.end
            if rank is None or frame.rank == rank:
                yield frame

    def lines(
        self, rank: Optional[int] = None, node: Optional[str] = None, stream: Optional[int] = None
    ) -> Iterator[OutputLine]:
        """Yield the lines of all that is there, merged by time; unfinished ones come last."""
        assembler = LineAssembler()
        for frame in self.frames(rank, node):
            if stream is None or frame.stream == stream:
                yield from assembler.feed(frame)
        yield from assembler.rest()

    def tail(
        self, rank: Optional[int], lines: int, stream: Optional[int] = None, node: Optional[str] = None
    ) -> list[OutputLine]:
        """Return the last `lines` lines of a rank (of all with None), oldest first; reads from the end of the files."""
        by_node: dict[str, list[Path]] = {}
        for path in self.files(node, rank):
            by_node.setdefault(split_name(path.name)[0], []).append(path)
        found: list[OutputLine] = []
        for paths in by_node.values():
            of_node: list[OutputLine] = []
            for path in reversed(paths):
                if len(of_node) < lines:
                    with suppress(FileNotFoundError):  # as above
                        of_node = _tail_of_file(path, rank, lines - len(of_node), stream) + of_node
            found += of_node
        found.sort(key=lambda line: line.time)
        return found[max(0, len(found) - lines) :]


def _keyed(path: Path, index: int, offset: int) -> Iterator[tuple[float, int, int, Frame]]:
    """Yield frames with a sort key that never goes backwards within a file, even when the node's clock did."""
    latest = float("-inf")
    with suppress(FileNotFoundError):  # the oldest part of a log that is rolled may have gone
        for frame in read_frames(path, offset):
            latest = max(latest, frame.time)
            yield latest, index, frame.end, frame


def _tail_of_file(path: Path, rank: Optional[int], count: int, stream: Optional[int]) -> list[OutputLine]:
    size, window = os.path.getsize(path), _READ_BYTES
    while True:
        start = max(0, size - window)
        assembler = LineAssembler()
        begun: set[tuple[int, int, int]] = set()
        last: deque[tuple[bool, OutputLine]] = deque(maxlen=count)

        def keep(line: OutputLine) -> None:
            key = line[2:5]
            last.append((start == 0 or key in begun, line))  # noqa: B023 - used within this turn only
            begun.add(key)  # noqa: B023

        for frame in read_frames(path, start, size):
            if (rank is None or frame.rank == rank) and (stream is None or frame.stream == stream):
                for line in assembler.feed(frame):
                    keep(line)
        for line in assembler.rest():
            keep(line)
        if start == 0 or (len(last) == count and all(whole for whole, _ in last)):
            return [line for _, line in last]
        window *= 4


def _crc(checked: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(checked))


def _frame_size(buffer: bytes, at: int) -> int:
    """Return the size of the whole frame at `at`; 0 when it may go on behind the buffer, -1 when there is none."""
    left = len(buffer) - at
    if left < HEADER_BYTES:
        return 0
    fields = _CHECKED.unpack_from(buffer, at)
    size = HEADER_BYTES + fields[6]
    if fields[0] != MAGIC or fields[6] > MAX_DATA_BYTES:
        return -1
    if left < size:
        return 0
    (crc,) = _CRC.unpack_from(buffer, at + _CHECKED.size)
    whole = crc == _crc(buffer[at : at + _CHECKED.size], buffer[at + HEADER_BYTES : at + size])
    return size if whole else -1


def _frame(buffer: bytes, at: int, size: int, base: int, name: str) -> Frame:
    _, stream, flags, rank, attempt, moment, _ = _CHECKED.unpack_from(buffer, at)
    return Frame(moment, rank, stream, attempt, flags, buffer[at + HEADER_BYTES : at + size], base + at + size, name)


def _read(path: Union[str, Path], offset: int, descriptor: Optional[int]) -> bytes:
    if descriptor is not None:
        return os.pread(descriptor, _READ_BYTES, offset)
    with open(path, "rb", buffering=0, opener=regular_below(Path(path).parent.parent)) as file:
        return os.pread(file.fileno(), _READ_BYTES, offset)


def _whole_size(descriptor: int) -> int:
    """Return the size without a torn frame at the end; damage longer than a frame is no torn frame and stays."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _REPAIR_BYTES)
    tail = os.pread(descriptor, size - start, start)
    end = at = 0
    while 0 <= at < len(tail):
        whole = _frame_size(tail, at)
        if whole > 0:
            end = at = at + whole
        else:
            at = tail.find(_MAGIC_BYTES, at + 1)
    return start + end if len(tail) - end < HEADER_BYTES + MAX_DATA_BYTES else size
