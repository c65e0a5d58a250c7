"""A data set as a row of blocks: where each lies in which files, and which of them are on this node already."""

from __future__ import annotations

import bisect
import os
import struct
import threading
from pathlib import Path
from typing import IO, Iterator, NamedTuple, Optional, Sequence

from cordee.wire.peers import DIGEST_BYTES, digest_of
from cordee.wire.stores._base import Stored

BLOCK_BYTES = 8 << 20
_RECORD = struct.Struct(f">Q{DIGEST_BYTES}s")


class BlockPart(NamedTuple):
    """A part of an object."""

    object: Stored
    start: int
    length: int


class BlockRow:
    """The objects of a data set one behind the other, cut into blocks of the same size.

    Args:
        objects: in the order that all nodes have them in.
        block_bytes: of all blocks but the last.
    """

    def __init__(self, objects: Sequence[Stored], block_bytes: int = BLOCK_BYTES) -> None:
        self.objects, self.block_bytes = [one for one in objects if one.bytes], block_bytes
        self._starts = [0]
        for one in self.objects:
            self._starts.append(self._starts[-1] + one.bytes)
        self.bytes = self._starts[-1]
        self.count = -(-self.bytes // block_bytes)

    def length(self, block: int) -> int:
        """Return the bytes of a block."""
        return min(self.block_bytes, self.bytes - block * self.block_bytes)

    def stretches(self, block: int) -> Iterator[BlockPart]:
        """Yield what a block consists of, in order."""
        at, end = block * self.block_bytes, block * self.block_bytes + self.length(block)
        place = bisect.bisect_right(self._starts, at) - 1
        while at < end:
            start = at - self._starts[place]
            length = min(self.objects[place].bytes - start, end - at)
            yield BlockPart(self.objects[place], start, length)
            at, place = at + length, place + 1


class BlockFolder:
    """The files of a data set while they fill with blocks, by any number of threads.

    What is there is written beside them as it comes, with its digest: whoever goes on after a kill finds it, and takes only what still
    has that digest.

    Args:
        folder: that the objects lie below.
        row: of the objects.
        kept: the file in which it is written what is there; None: nowhere.
    """

    def __init__(self, folder: Path, row: BlockRow, kept: Optional[Path]) -> None:
        self.folder, self.row = folder, row
        self._digests: dict[int, Optional[bytes]] = {}
        self._first = 0
        self._come = threading.Condition()
        self._kept: Optional[IO[bytes]] = None
        if kept is not None:
            for block, digest in _records(kept):
                if block < row.count and self._holds(block, digest):
                    self._digests[block] = digest
            self._kept = kept.open("ab", buffering=0)
        self._size = sum(row.length(block) for block in self._digests)

    @classmethod
    def whole_one(cls, folder: Path, row: BlockRow) -> BlockFolder:
        """Return a folder that has all of it already; what digests its blocks came with is not known any more."""
        found = cls(folder, row, None)
        found._digests = dict.fromkeys(range(row.count))
        found._size = row.bytes
        return found

    @property
    def size(self) -> int:
        """What is there."""
        return self._size

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        with self._come:
            return len(self._digests) == self.row.count

    def missing(self) -> Iterator[int]:
        """Yield the blocks that are not there, as it is when each comes to its turn."""
        while self._first in self._digests:
            self._first += 1
        return (block for block in range(self._first, self.row.count) if block not in self._digests)

    def has(self, block: int) -> bool:
        """Return whether a block is there."""
        with self._come:
            return block in self._digests

    def wait(self, block: int, seconds: float) -> bool:
        """Wait until a block is there; return whether it is."""
        with self._come:
            return self._come.wait_for(lambda: block in self._digests, seconds)

    def put(self, block: int, data: bytes) -> None:
        """Write a block.

        Raises:
            OSError: it cannot be written.
        """
        digest, view, at = digest_of(data), memoryview(data), 0
        for part in self.row.stretches(block):
            path = self.folder / part.object.name
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                done = 0
                while done < part.length:
                    done += os.pwrite(descriptor, view[at + done : at + part.length], part.start + done)
            finally:
                os.close(descriptor)
            at += part.length
        if self._kept is not None:
            self._kept.write(_RECORD.pack(block, digest))
        with self._come:
            if block not in self._digests:
                self._size += self.row.length(block)
            self._digests[block] = digest
            self._come.notify_all()

    def get(self, block: int) -> "tuple[bytes, Optional[bytes]]":
        """Return a block that is there, and the digest that it came with, if that is known.

        Raises:
            OSError: it cannot be read. KeyError: it is not there.
        """
        with self._come:
            digest, folder = self._digests[block], self.folder
        return b"".join(_read(folder, part) for part in self.row.stretches(block)), digest

    def moved(self, folder: Path) -> None:
        """The files lie there from now on."""
        with self._come:
            self.folder = folder

    def close(self) -> None:
        """Write no more."""
        if self._kept is not None:
            self._kept.close()

    def _holds(self, block: int, digest: bytes) -> bool:
        try:
            return digest_of(b"".join(_read(self.folder, part) for part in self.row.stretches(block))) == digest
        except OSError:
            return False


def _read(folder: Path, part: BlockPart) -> bytes:
    descriptor = os.open(folder / part.object.name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces, at, end = [], part.start, part.start + part.length
        while at < end:
            piece = os.pread(descriptor, end - at, at)
            if not piece:
                raise OSError(0, "it is shorter than it was", part.object.name)
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    for at in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        yield _RECORD.unpack_from(data, at)
