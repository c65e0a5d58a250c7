"""Bytes that can be read anywhere: a file, a part of it, or what was unpacked; and how much of all that a scan may cost."""

from __future__ import annotations

import io
import math
import os
import time
from typing import Any, Iterator, Optional

_CHUNK = 1 << 20
_LEAST_S, _BYTES_PER_S = 20.0, 10 << 20
_LONGEST_LINE = 64 << 20  # of a pickle's texts; zeros without an end have no line


class TooMuch(Exception):
    """A file, or a part of it, wants more than a scan may cost; says of what."""


class Source:
    """Bytes at positions from 0 to `size`.

    Args:
        size: how many bytes there are.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def at(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset` on; fewer at the end."""
        raise NotImplementedError

    def in_file(self) -> Optional[int]:
        """Return where in the file that is looked at the bytes begin; None: they were unpacked."""
        return None

    def part(self, offset: int, size: int) -> Source:
        """Return some of the bytes as a source of its own."""
        offset = min(max(0, offset), self.size)
        return _Part(self, offset, min(max(0, size), self.size - offset))

    def chunks(self, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield all bytes in pieces with their positions; each begins with the last `overlap` bytes of the one before."""
        offset = 0
        while offset < self.size:
            piece = self.at(offset, _CHUNK)
            if not piece:
                return
            yield offset, piece
            offset += len(piece) if offset + len(piece) >= self.size else max(1, len(piece) - overlap)

    def file(self, *, ahead: bool = True) -> Any:
        """Return a file object; one that reads not `ahead` has taken no byte more than it was asked for."""
        raw = _SourceFile(self)
        return _AheadFile(raw, 128 << 10) if ahead else raw


class FileSource(Source):
    """An open regular file, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(os.lseek(descriptor, 0, os.SEEK_END))
        self._descriptor = descriptor

    def in_file(self) -> Optional[int]:
        return 0

    def at(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, max(0, min(count, self.size - offset)), offset) if offset >= 0 else b""


class BytesSource(Source):
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        return self._data[offset : offset + count] if offset >= 0 else b""


class _Part(Source):
    def __init__(self, whole: Source, offset: int, size: int) -> None:
        super().__init__(size)
        self._whole, self._offset = whole, offset

    def in_file(self) -> Optional[int]:
        begin = self._whole.in_file()
        return None if begin is None else begin + self._offset

    def at(self, offset: int, count: int) -> bytes:
        if offset < 0 or offset >= self.size:
            return b""
        return self._whole.at(self._offset + offset, min(count, self.size - offset))


class _SourceFile(io.RawIOBase):
    """A source as a file, with exact positions."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._source.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._source.at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readline(self, size: Optional[int] = -1) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._source.at(self._at, 256)
            end = piece.find(b"\n") + 1
            piece = piece[:end] if end else piece
            if not piece:
                break
            line += piece
            self._at += len(piece)
            if len(line) > _CHUNK:
                raise TooMuch("a line of more than 1 MiB")
        return line


class _AheadFile(io.BufferedReader):
    """A source as a file that reads ahead; a line that is longer than any is cut."""

    def readline(self, size: Optional[int] = -1) -> bytes:
        return super().readline(_LONGEST_LINE if size is None or size < 0 else size)


class BudgetSpent(TooMuch):
    """Nothing more of the whole file can be looked at."""


def patience_s(size: int) -> float:
    """Return for how many seconds a file of so many bytes may be looked at."""
    return _LEAST_S + size / _BYTES_PER_S


class ScanBudget:
    """What may be spent on one file.

    Args:
        until: when to stop unpacking, in monotonic seconds, so that what was seen can be told.
        unpacked_bytes: that may be held or passed in memory, all containers together.
        containers: archives within archives, in all.
        depth: how deep they may be nested.
    """

    def __init__(
        self, until: float = math.inf, unpacked_bytes: int = 4 << 30, containers: int = 20_000, depth: int = 12
    ) -> None:
        self._until, self._bytes, self._containers, self._depth = until, unpacked_bytes, containers, depth

    def unpacked(self, count: int) -> None:
        """So many bytes were unpacked.

        Raises:
            BudgetSpent: it is more than allowed, or took too long.
        """
        self._bytes -= count
        if self._bytes < 0:
            raise BudgetSpent("it unpacks to more than 4 GiB")
        if time.monotonic() > self._until:
            raise BudgetSpent("unpacking it takes too long")

    def opened(self, depth: int) -> None:
        """Something inside of something else is looked at, so deep.

        Raises:
            BudgetSpent: there are too many of those.
            TooMuch: it lies too deep.
        """
        self._containers -= 1
        if self._containers < 0:
            raise BudgetSpent("it holds more than 20,000 files within files")
        if depth > self._depth:
            raise TooMuch("archives are nested more than twelve deep")
