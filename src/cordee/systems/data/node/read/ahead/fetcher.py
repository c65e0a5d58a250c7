"""Read-ahead by threads: what is read next is fetched into this process in few large requests, and handed over from there."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence

from cordee.systems.data.node.read.ahead.read_ahead import ReadAhead, merged
from cordee.systems.data.node.read.ahead.threads import Threads
from cordee.systems.data.node.read.packed.layout import PackedLayout, ShardPieces

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class FetchShape(NamedTuple):
    """What requests look like: bytes between two samples that are read in one, bytes of one at most, how many at once."""

    gap_bytes: int
    request_bytes: int
    threads: int


# A request to a network file system costs about as much as 256 KiB; one to an object store as much as 1 MiB.
NETWORK_FILES = FetchShape(256 << 10, 8 << 20, 8)
OBJECTS = FetchShape(1 << 20, 8 << 20, 16)


class SamplePart(NamedTuple):
    """One stretch of a sample within a request's answer."""

    answer: "Future[bytes]"
    begin: int
    length: int

    def bytes(self) -> Optional[bytes]:
        """Wait for the answer and return the stretch; None when a file system failed, or the file ended before.

        Raises:
            DataError: the shard is not there, or another one; or an object store did not serve it, as often as it was asked.
        """
        try:
            data = self.answer.result()
        except (OSError, CancelledError):
            return None
        part = data[self.begin : self.begin + self.length]
        return part if len(part) == self.length else None


class Fetcher(ReadAhead):
    """Holds what was fetched until it is read.

    Args:
        ahead: False: nothing is fetched early, only several samples of one block at once.
    """

    def __init__(
        self, layout: PackedLayout, limit_bytes: int, threads: Threads, shape: FetchShape, ahead: bool = True
    ) -> None:
        self._threads = threads
        self._shape = shape
        self._held: dict[int, list[SamplePart]] = {}
        self._ahead = ahead
        super().__init__(layout, limit_bytes)

    def expect(self, samples: "Array") -> None:
        """Append to what is read next."""
        if self._ahead:
            super().expect(samples)

    def reached(self, samples: "Array") -> Optional[int]:
        """Say what is read now; waits until what is expected first is asked for, in as few requests as may be."""
        with self._changed:
            if len(self._samples):
                self._changed.wait_for(lambda: self._closed or self._first in self._held)
        return super().reached(samples)

    def take(self, first: Optional[int], samples: "Array") -> list[list[Optional[bytes]]]:
        """Return the pieces of each sample, in the order of `PackedLayout.pieces`; None where storage failed.

        Args:
            first: what `reached` returned for the first of them.
        """
        held: list[Optional[list[SamplePart]]] = [None] * len(samples)
        if first is not None:
            with self._changed:
                held = [self._held.pop(number, None) for number in range(first, first + len(samples))]
        missing = [place for place, parts in enumerate(held) if parts is None]
        if missing:
            pieces = self.layout.pieces(self.layout.block(samples[missing]))
            for place, started in zip(missing, self._start(pieces, len(missing), urgent=True)):
                held[place] = started
        found = []
        for place, parts in enumerate(held):
            found.append([part.bytes() for part in parts or []])
            held[place] = None  # an answer lives as long as one of its parts
        return found

    def close(self) -> None:
        """End the threads."""
        super().close()
        self._threads.close()

    def _ask(self, first: int, window: "Array") -> None:
        count, pieces = len(window), self._pieces(window)
        with self._changed:
            passed = max(0, self._first - first)  # read, or forgotten, while the window was planned
            if passed >= count or self._closed:
                return
            wanted = pieces.owners >= passed
            left = ShardPieces(*(column[wanted] for column in pieces))
            for number, parts in enumerate(self._start(left, count)):
                if number >= passed:
                    self._held[first + number] = parts
            self._changed.notify_all()

    def _start(self, pieces: ShardPieces, count: int, urgent: bool = False) -> list[list[SamplePart]]:
        """Ask for pieces; return the parts of each of `count` samples."""
        parts: list[list[SamplePart]] = [[] for _ in range(count)]
        if not len(pieces.owners):
            return parts
        order, starts, begins, ends = merged(pieces, self._shape.gap_bytes, self._shape.request_bytes)
        found: list[Any] = [None] * len(order)
        piece_begins, piece_ends = pieces.begins.tolist(), pieces.ends.tolist()
        shards = pieces.shards[order[starts]].tolist()
        bounds: Sequence[int] = [*starts.tolist(), len(order)]
        for number, (shard, begin, end) in enumerate(zip(shards, begins.tolist(), ends.tolist())):
            answer = self._threads.ask(shard, begin, end - begin, urgent)
            for place in order[bounds[number] : bounds[number + 1]].tolist():
                found[place] = SamplePart(answer, piece_begins[place] - begin, piece_ends[place] - piece_begins[place])
        for owner, part in zip(pieces.owners.tolist(), found):
            parts[owner].append(part)
        return parts

    def _forget(self) -> None:
        super()._forget()
        for parts in self._held.values():
            for part in parts:
                part.answer.cancel()
        self._held.clear()
