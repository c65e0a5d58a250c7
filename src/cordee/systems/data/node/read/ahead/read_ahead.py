"""Read-ahead: a thread of its own asks storage for what is read next, in the order of the files, bounded by bytes."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Optional

from cordee.systems.data.node.read.packed.layout import PackedLayout, ShardPieces

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# The first stretch is small, so that training begins soon; each is twice the one before until half of the limit: the
# more samples are sorted at once, the more of them lie side by side.
FIRST_BYTES = 32 << 20
_MOST_WASTE = 4


class ReadAhead(ABC):
    """Follows what is expected and what is read; an adaptor's `_ask` starts the reading of one window of samples.

    Samples must be read in the order in which they were told; where others are read, everything expected is forgotten.

    Args:
        limit_bytes: asked for and not yet read, at most.
    """

    def __init__(self, layout: PackedLayout, limit_bytes: int) -> None:
        import numpy

        self.layout = layout
        self.limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        self._nothing: Array = numpy.zeros(0, numpy.int64)
        self._samples = self._bytes = self._nothing
        self._asked = self._outstanding = self._waiting = self._last = self._window = 0
        self._first = 0  # the number of the first sample in `_samples`, counted over all that were told
        self._forget()

    def expect(self, samples: "Array") -> None:
        """Append to what is read next."""
        import numpy

        samples = numpy.array(samples, dtype=numpy.int64).reshape(-1)
        block = self.layout.block(samples)
        with self._changed:
            self._samples = numpy.concatenate([self._samples, samples])
            self._bytes = numpy.concatenate([self._bytes, block.ends - block.begins])
            self._waiting += int(self._bytes[len(self._bytes) - len(samples) :].sum())
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="cordee-read-ahead", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def reached(self, samples: "Array") -> Optional[int]:
        """Say what is read now; return the number of its first sample among all that were told, None: not expected."""
        with self._changed:
            count = len(samples)
            if not len(self._samples):
                return None
            if count > len(self._samples) or not (self._samples[:count] == samples).all():
                self._first += len(self._samples)
                self._forget()
                return None
            asked = min(count, self._asked)
            self._outstanding -= int(self._bytes[:asked].sum())
            self._waiting -= int(self._bytes[asked:count].sum())
            self._asked -= asked
            self._samples, self._bytes = self._samples[count:], self._bytes[count:]
            self._first += count
            self._changed.notify_all()
            return self._first - count

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._forget()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @abstractmethod
    def _ask(self, first: int, window: "Array") -> None:
        """Start reading the samples of a window; the first of them has number `first`. Called by the thread."""

    def _pieces(self, samples: "Array") -> ShardPieces:
        return self.layout.pieces(self.layout.block(samples))

    def _forget(self) -> None:
        """Drop what was expected."""
        self._samples = self._bytes = self._nothing
        self._asked = self._outstanding = self._waiting = self._last = 0
        self._window = min(FIRST_BYTES, max(1, self.limit_bytes // 2))

    def _run(self) -> None:
        try:
            self._ask_until_closed()
        finally:  # whatever ends the thread, nobody waits for it
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _ask_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._room())
                if self._closed:
                    return
                window = self._taken()
                first = self._first + self._asked - len(window)
            self._ask(first, window)

    def _room(self) -> bool:
        """Say whether a window can be asked for: a small one only when little of the one before is left."""
        if len(self._samples) == self._asked:
            return False
        if self._outstanding + self._window > self.limit_bytes:
            return not self._outstanding
        return self._waiting >= self._window or self._outstanding <= self._last // 2

    def _taken(self) -> "Array":
        sums = self._bytes[self._asked :].cumsum()
        count = max(1, int(sums.searchsorted(self._window, side="right")))
        window = self._samples[self._asked : self._asked + count]
        self._asked += len(window)
        self._last = int(sums[min(count, len(sums)) - 1])
        self._outstanding += self._last
        self._waiting -= self._last
        self._window = min(2 * self._window, max(1, self.limit_bytes // 2))
        return window


def merged(pieces: ShardPieces, gap_bytes: int, most_bytes: int = 1 << 62) -> "tuple[Array, Array, Array, Array]":
    """Join pieces that lie close to each other, in the order of the files.

    What lies between is read too, at most a quarter of what is wanted.

    Args:
        gap_bytes: between two pieces that are read in one, at most.
        most_bytes: of one request, unless a piece is larger.

    Returns:
        the pieces' order; and of each request where its pieces begin in that order, its begin and its end in the shard.
    """
    import numpy

    order = numpy.lexsort((pieces.begins, pieces.shards))
    shards, begins, ends = pieces.shards[order], pieces.begins[order], pieces.ends[order]
    ends_so_far = numpy.maximum.accumulate(ends + (shards.astype(numpy.int64) << 44)) - (
        shards.astype(numpy.int64) << 44
    )
    gaps = begins[1:] - ends_so_far[:-1]
    same = shards[1:] == shards[:-1]
    wanted = int((ends - begins).sum())
    while gap_bytes and int(gaps[same & (gaps > 0) & (gaps <= gap_bytes)].sum()) * _MOST_WASTE > wanted:
        gap_bytes //= 2
    starts = numpy.flatnonzero(numpy.concatenate([[True], ~same | (gaps > gap_bytes)]))
    if most_bytes < 1 << 62:
        starts = _split(starts, begins, ends_so_far, most_bytes)
    return order, starts, begins[starts], numpy.maximum.reduceat(ends, starts)


def _split(starts: "Array", begins: "Array", ends: "Array", most_bytes: int) -> "Array":
    """Cut requests where they would become larger than `most_bytes`."""
    import numpy

    found = []
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(begins)]):
        while start < stop:
            found.append(start)
            start = max(start + 1, start + int(ends[start:stop].searchsorted(begins[start] + most_bytes, side="right")))
    return numpy.array(found, numpy.int64)


def ranks_of_node() -> int:
    """Return how many ranks share this node's memory, as launchers say."""
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return 1
