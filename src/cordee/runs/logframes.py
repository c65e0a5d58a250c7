"""What ranks print, byte for byte: one framed file `logs/<node>-<segment>.log` per node and segment.

A frame is a 28-byte header, little-endian: magic u16, stream u8 (0 out, 1 err, 2 Cordée's own), flags u8, rank i32,
attempt u32, UTC time f64, data length u32, CRC-32 u32 over the rest of the header and the data. Data is at most 64 KiB.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Union

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


def split_name(name: str) -> tuple[str, int]:
    """Return (node, segment) of a log file's name; segment -1 for a name that is none."""
    stem = name[:-4] if name.endswith(".log") else name
    node, dash, segment = stem.rpartition("-")
    return (node, int(segment)) if dash and segment.isdigit() else (stem, -1)


class LogWriter:
    """Appends frames to one file; never raises for the disk's sake.

    A torn frame that a killed writer left at the end is cut off. Output that the disk refuses is lost and counted; as soon
    as there is room again a frame with the flag LOST says how much, in its rank's place.

    Args:
        path: the file, in a folder that exists; made when it is missing.

    Attributes:
        dropped_bytes: bytes of output lost so far.
        last_error: what the disk said last, None while all is well.
    """

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = Path(path)
        self.dropped_bytes = 0
        self.last_error: Optional[OSError] = None
        self._descriptor: Optional[int] = None
        self._size = 0
        self._lost: dict[tuple[int, int], int] = {}
        self._time = 0.0
        try:
            self._open()
        except OSError as error:
            self.last_error = error

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
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = _whole_size(self._descriptor)
        os.ftruncate(self._descriptor, self._size)

    def _append(self, frame: bytes) -> None:
        assert self._descriptor is not None
        view = memoryview(frame)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._size += len(frame)

    def _cut(self) -> None:
        """Take back a frame that was written in part; where that fails, reopening repairs the file."""
        if self._descriptor is not None:
            try:
                os.ftruncate(self._descriptor, self._size)
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
    return checked + _CRC.pack(zlib.crc32(data, zlib.crc32(checked))) + data


def read_frames(path: Union[str, Path], offset: int = 0, stop: Optional[int] = None) -> Iterator[Frame]:
    """Yield the whole frames that begin in [offset, stop); damage is passed over, a torn tail ends the iteration.

    Call again with the last frame's `end` to go on while the file grows. The file is not kept open between reads.
    """
    name = os.path.basename(path)
    buffer, base, at = b"", offset, 0
    more = True
    while stop is None or base + at < stop:
        frame, step = _parse(buffer, at, base, name, more)
        if frame is not None:
            yield frame
        elif step == 0:
            if not more:
                return
            base, buffer, at = base + at, buffer[at:], 0
            piece = _pread(path, base + len(buffer), _READ_BYTES)
            buffer, more = buffer + piece, len(piece) > 0
        at += step


def _parse(buffer: bytes, at: int, base: int, name: str, more: bool) -> tuple[Optional[Frame], int]:
    """Return (frame, its size), or (None, bytes to pass over), or (None, 0) when more bytes are needed."""
    left = len(buffer) - at
    if left >= HEADER_BYTES:
        magic, stream, flags, rank, attempt, moment, length = _CHECKED.unpack_from(buffer, at)
        if magic == MAGIC and length <= MAX_DATA_BYTES:
            start = at + HEADER_BYTES
            if left - HEADER_BYTES >= length:
                data = buffer[start : start + length]
                if _CRC.unpack_from(buffer, at + _CHECKED.size)[0] == _crc(buffer[at : at + _CHECKED.size], data):
                    end = base + start + length
                    return Frame(moment, rank, stream, attempt, flags, data, end, name), HEADER_BYTES + length
            elif more:
                return None, 0
            elif _find_frame(buffer, at + 1) is None:
                return None, 0
    elif more or _MAGIC_BYTES.find(buffer[at : at + 2]) == 0:
        return None, 0
    found = buffer.find(_MAGIC_BYTES, at + 1)
    if found >= 0:
        return None, found - at
    return None, max(left - 1, 0)


def _find_frame(buffer: bytes, start: int) -> Optional[int]:
    """Return the offset of the first whole frame in `buffer` at or after `start`."""
    at = buffer.find(_MAGIC_BYTES, start)
    while at >= 0:
        if len(buffer) - at >= HEADER_BYTES:
            length = _CHECKED.unpack_from(buffer, at)[6]
            data = buffer[at + HEADER_BYTES : at + HEADER_BYTES + length] if length <= MAX_DATA_BYTES else b""
            if len(data) == length:
                if _CRC.unpack_from(buffer, at + _CHECKED.size)[0] == _crc(buffer[at : at + _CHECKED.size], data):
                    return at
        at = buffer.find(_MAGIC_BYTES, at + 1)
    return None
