"""Batches made ahead of the loop: one thread reads block after block, others decode; the loop gets them in their order."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any, Callable, Iterator, Optional, Union

from cordee.data.read._base import Source
from cordee.data.read.batches import Block, RawBatch, Work
from cordee.data.read.collate import array_bytes
from cordee.data.read.letting_go import close_elsewhere
from cordee.errors import UsageError

_SMALLEST_PIECE = 8
_FIRST_LIMIT_BYTES = 16 << 20


class Ahead:
    """An iterator of batches that works ahead in threads until about `limit_bytes` are waiting.

    Nothing is locked per sample: a block of batches is handed over at once. What a thread raises is raised in the loop at
    the place of the batch it belongs to. `close` ends all threads; so does letting go of the iterator.

    Args:
        blocks: gives the raw batches; run in the reading thread.
        threads: that decode; 0 where there is nothing to decode, and the reading thread does the rest.
    """

    def __init__(self, blocks: Iterator[Block], source: Source, work: Work, threads: int, limit_bytes: int) -> None:
        self._queue = _Queue(limit_bytes)
        self._pool = _Pool(threads, self._queue) if threads and work.heavy else None
        maker = partial(_hand_over, source, work, threads, self._pool)
        self._reader = threading.Thread(
            target=_read_ahead, args=(self._queue, blocks, maker), name="cordee-read", daemon=True
        )
        self._process = os.getpid()
        self._here: deque[Any] = deque()
        self._reader.start()

    def __iter__(self) -> "Ahead":
        return self

    def __next__(self) -> Any:
        while not self._here:
            if os.getpid() != self._process:
                raise UsageError(
                    "a loop over a data set was begun in another process, whose threads are not here",
                    next="begin the loop in the process that reads",
                )
            taken = self._queue.take()
            if taken is None:
                raise StopIteration
            self._here.extend(taken)
        batch = self._here.popleft()
        if isinstance(batch, _Failure):
            raise batch.error
        return batch.wait() if isinstance(batch, _Pending) else batch.value

    def close(self) -> None:
        """End the threads and wait for them; a read that is under way is waited for."""
        if os.getpid() != self._process:
            return
        self._queue.stop()
        self._here.clear()
        if self._pool is not None:
            self._pool.stop()
        if self._reader is not threading.current_thread():
            self._reader.join()

    def __del__(self) -> None:
        if getattr(self, "_process", None) == os.getpid() and not self._queue.stopped:
            close_elsewhere(self.close)


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Ready:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pending:
    """A batch whose pieces are decoded by several threads; the last one puts it together."""

    def __init__(self, queue: "_Queue", source: Source, work: Work, batch: RawBatch, raw_bytes: int) -> None:
        self._queue, self._source, self._work, self._batch, self._raw_bytes = queue, source, work, batch, raw_bytes
        self._guard, self._done = threading.Lock(), threading.Event()
        self._parts: list[Any] = []
        self._left = 0
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def pieces(self, threads: int) -> list[Callable[[], None]]:
        """Return the tasks that make the batch."""
        samples, numbers = self._batch.samples, self._batch.numbers
        self._batch.samples = []
        size = max(_SMALLEST_PIECE, -(-len(numbers) // threads))
        pieces = [
            RawBatch(samples[begin : begin + size], numbers[begin : begin + size])
            for begin in range(0, max(1, len(numbers)), size)
        ]
        self._parts, self._left = [[]] * len(pieces), len(pieces)
        return [partial(self._run, number, piece) for number, piece in enumerate(pieces)]

    def wait(self) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self, number: int, piece: RawBatch) -> None:
        try:
            if self._error is None:
                self._parts[number] = self._work.values(self._source, piece)
        except BaseException as error:
            self._error = error
        with self._guard:
            self._left -= 1
            last = not self._left
        if last:
            self._finish()

    def _finish(self) -> None:
        try:
            if self._error is None:
                values = [value for part in self._parts for value in part]
                self._value = self._work.put_together(self._source, self._batch, values)
                self._queue.grew(array_bytes(self._value) / max(1, self._raw_bytes))
        except BaseException as error:
            self._error = error
        self._parts = []
        self._done.set()


Batch = Union[_Ready, _Pending, _Failure]


def _hand_over(source: Source, work: Work, threads: int, pool: "Optional[_Pool]", block: Block) -> list[Batch]:
    """Return a block's batches: ready, or under way in the pool."""
    if pool is None:
        return [_Ready(work.whole(source, batch)) for batch in block.batches]
    found: list[Batch] = []
    share = block.bytes // len(block.batches)
    for batch in block.batches:
        pending = _Pending(pool.queue, source, work, batch, share)
        for piece in pending.pieces(threads):
            pool.tasks.put(piece)
        found.append(pending)
    return found


def _read_ahead(queue: "_Queue", blocks: Iterator[Block], hand_over: Callable[[Block], list[Batch]]) -> None:
    """Run by the reading thread until the blocks end, the loop does, or something fails."""
    try:
        for block in blocks:
            size, batches = block.bytes, hand_over(block)
            del block  # its memory is used again for the next, as soon as the loop is through with it
            if not queue.put(batches, size):
                return
            del batches
    except BaseException as error:
        queue.put([_Failure(error)], 0)
    queue.put(None, 0)


class _Queue:
    """Blocks on their way to the loop, bounded by their bytes.

    The bound begins low and doubles whenever the loop had to wait, until it is `limit_bytes`: where reading is the faster
    one, few bytes are under way and they stay in the processor's caches.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._most, self._limit = limit_bytes, min(limit_bytes, _FIRST_LIMIT_BYTES)
        self._blocks: deque[tuple[Optional[list[Batch]], int]] = deque()
        self._held = 0
        self._growth = 1.0
        self._changed = threading.Condition()
        self.stopped = False

    def put(self, block: Optional[list[Batch]], size: int) -> bool:
        """Hand a block over and wait until there is room for the next; return whether one is wanted."""
        with self._changed:
            weight = int(size * self._growth)
            self._blocks.append((block, weight))
            self._held += weight
            self._changed.notify_all()
            while not self.stopped and self._held > self._limit and len(self._blocks) > 1:
                self._changed.wait()
            return not self.stopped

    def take(self) -> Optional[list[Batch]]:
        """Return the next block, None when there are no more."""
        with self._changed:
            if not self._blocks:
                self._limit = min(self._most, 2 * self._limit)
            while not self._blocks:
                self._changed.wait()
            if self._blocks[0][0] is None:
                return None
            block, weight = self._blocks.popleft()
            self._held -= weight
            self._changed.notify_all()
            return block

    def grew(self, growth: float) -> None:
        """Note how many bytes a decoded batch has for each raw one."""
        self._growth = max(1.0, growth)

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._blocks.clear()
            self._blocks.append((None, 0))
            self._changed.notify_all()


class _Pool:
    """Threads that run tasks in the order they came; after `stop` they leave out what has not begun."""

    def __init__(self, threads: int, queue: _Queue) -> None:
        self.tasks: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()
        self.queue = queue
        self._threads = [
            threading.Thread(target=_run_tasks, args=(self.tasks, queue), name=f"cordee-decode-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for _ in self._threads:
            self.tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


def _run_tasks(tasks: "SimpleQueue[Optional[Callable[[], None]]]", queue: _Queue) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        if not queue.stopped:
            task()
