"""Batches made ahead of the loop, which gets them in their order.

Where a source can be read in parts, each thread reads what it decodes; else one thread reads block after block, and others
decode.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any, Callable, Iterator, Optional, Union

from cordee.core.errors import UsageError
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.batches.batches import BatchBlock, BatchGrowth, RawBatch, Work
from cordee.systems.data.node.read.batches.collate import array_bytes
from cordee.systems.data.node.read.deferred_close import ENDING, close_elsewhere

_FIRST_LIMIT_BYTES = 16 << 20
# So many blocks are under way while nobody knows yet how large what is made of them will be.
_UNKNOWN_BLOCKS = 4
# A loop that waits no longer for a batch under way is not helped by more of them: they only leave the processor's caches.
_SHORT_S = 0.01


class BatchPrefetcher:
    """An iterator of batches that works ahead in threads until about `limit_bytes` are waiting.

    Nothing is locked per sample: a block of batches is handed over at once. What a thread raises is raised in the loop at
    the place of the batch it belongs to. `close` ends all threads; so does letting go of the iterator.

    Args:
        blocks: gives the raw batches; run by one thread at a time.
        threads: that decode, where there is something to decode.
        growth: where what batches show of it is kept.
        unread: the batches are yet to be read, and those threads do it.
    """

    _ending = ENDING

    def __init__(
        self,
        blocks: Iterator[BatchBlock],
        source: SampleSource,
        work: Work,
        threads: int,
        limit_bytes: int,
        growth: Optional[BatchGrowth] = None,
        *,
        unread: bool = False,
    ) -> None:
        self._queue = queue = _Queue(limit_bytes, growth or BatchGrowth())
        self._process = os.getpid()
        self._here: deque[Any] = deque()
        self._tasks = _Tasks()
        pending = partial(_Pending, queue, source, work, threads)
        if unread:
            supply = _Supply(queue, blocks, pending)
            self._threads = [_thread(f"decode-{number}", _run_tasks, supply.take, queue) for number in range(threads)]
        else:
            decoding = range(threads if work.heavy else 0)
            self._threads = [_thread(f"decode-{number}", _run_tasks, self._tasks.get, queue) for number in decoding]
            hand_over = partial(_begun, pending, self._tasks) if work.heavy else partial(_made, source, work)
            self._threads.append(_thread("read", _read_ahead, queue, blocks, hand_over))
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> "BatchPrefetcher":
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
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def __del__(self) -> None:
        if not self._ending() and getattr(self, "_process", None) == os.getpid() and not self._queue.stopped:
            close_elsewhere(self.close)


Task = Callable[[], None]


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Ready:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pending:
    """A batch whose parts are read, unless they are, and decoded by several threads; the last one puts it together."""

    def __init__(
        self, queue: "_Queue", source: SampleSource, work: Work, threads: int, batch: RawBatch, raw_bytes: int
    ) -> None:
        self._queue, self._source, self._work, self._batch, self._raw_bytes = queue, source, work, batch, raw_bytes
        self._most_parts = threads
        self._guard, self._done = threading.Lock(), threading.Event()
        self._values: list[list[Any]] = []
        self._left = 0
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def tasks(self) -> list[Task]:
        """Return the tasks that make the batch."""
        parts = self._batch.parts(self._most_parts)
        self._values, self._left = [[]] * len(parts), len(parts)
        return [partial(self._run, number, part) for number, part in enumerate(parts)]

    def wait(self) -> Any:
        if not self._done.wait(_SHORT_S):
            self._queue.widen()
            self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self, number: int, part: RawBatch) -> None:
        try:
            if self._error is None:
                self._values[number] = self._work.values(self._source, part)
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
                values = [value for part in self._values for value in part]
                self._value = self._work.put_together(self._source, self._batch, values)
                self._queue.note(array_bytes(self._value), self._raw_bytes)
        except BaseException as error:
            self._error = error
        self._values = []
        self._done.set()


Batch = Union[_Ready, _Pending, _Failure]


def _thread(what: str, run: Callable[..., None], *arguments: Any) -> threading.Thread:
    return threading.Thread(target=run, args=arguments, name=f"cordee-{what}", daemon=True)


def _made(source: SampleSource, work: Work, block: BatchBlock) -> list[Batch]:
    """Return a block's batches, put together by this thread."""
    return [_Ready(work.whole(source, batch)) for batch in block.batches]


def _begun(
    pending: Callable[[RawBatch, int], _Pending], tasks: "Union[_Tasks, deque[Task]]", block: BatchBlock
) -> list[Batch]:
    """Return a block's batches, and append the tasks that make them."""
    found: list[Batch] = []
    share = block.bytes // len(block.batches)
    for batch in block.batches:
        made = pending(batch, share)
        for task in made.tasks():
            tasks.append(task)
        found.append(made)
    return found


class _Supply:
    """The tasks of batches in their order; whichever thread finds none left draws the next block."""

    def __init__(
        self, queue: "_Queue", blocks: Iterator[BatchBlock], pending: Callable[[RawBatch, int], _Pending]
    ) -> None:
        self._queue, self._blocks, self._pending = queue, blocks, pending
        self._tasks: deque[Task] = deque()
        self._drawing = threading.Lock()
        self._ended = False

    def take(self) -> Optional[Task]:
        """Return the next task, None when there are no more; waits until more batches are wanted."""
        with self._drawing:
            while not self._tasks:
                if self._ended or not self._queue.wait_for_room():
                    return None
                self._draw()
            return self._tasks.popleft()

    def _draw(self) -> None:
        try:
            block = next(self._blocks, None)
            if block is not None:
                self._queue.put(_begun(self._pending, self._tasks, block), block.bytes)
                return
        except BaseException as error:
            self._queue.put([_Failure(error)], 0)
        self._queue.put(None, 0)
        self._ended = True


def _read_ahead(queue: "_Queue", blocks: Iterator[BatchBlock], hand_over: Callable[[BatchBlock], list[Batch]]) -> None:
    """Run by the reading thread until the blocks end, the loop does, or something fails."""
    try:
        for block in blocks:
            size, batches = block.bytes, hand_over(block)
            del block  # its memory is used again for the next, as soon as the loop is through with it
            queue.put(batches, size)
            del batches
            if not queue.wait_for_room():
                return
    except BaseException as error:
        queue.put([_Failure(error)], 0)
    queue.put(None, 0)


class _Queue:
    """Blocks on their way to the loop, bounded by their bytes.

    The bound begins low and doubles whenever the loop had to wait, until it is `limit_bytes`: where reading is the faster
    one, few bytes are under way and they stay in the processor's caches.
    """

    def __init__(self, limit_bytes: int, growth: BatchGrowth) -> None:
        self.growth = growth
        self._most, self._limit = limit_bytes, min(limit_bytes, _FIRST_LIMIT_BYTES)
        self._blocks: deque[tuple[Optional[list[Batch]], int]] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self.stopped = False

    def put(self, block: Optional[list[Batch]], size: int) -> None:
        """Hand a block over; None: there are no more."""
        with self._changed:
            self._blocks.append((block, size))
            self._held += size
            self._changed.notify_all()

    def wait_for_room(self) -> bool:
        """Wait until there is room for the next block; return whether one is wanted."""
        with self._changed:
            while not self.stopped and self._full():
                self._changed.wait()
            return not self.stopped

    def _full(self) -> bool:
        times = self.growth.times
        if times is None:
            return len(self._blocks) >= _UNKNOWN_BLOCKS
        return self._held * times > self._limit and len(self._blocks) > 1

    def note(self, made_bytes: float, read_bytes: float) -> None:
        """Keep how large a batch has become: from now on bytes are the bound."""
        with self._changed:
            self.growth.note(made_bytes, read_bytes)
            self._changed.notify_all()

    def take(self) -> Optional[list[Batch]]:
        """Return the next block, None when there are no more."""
        with self._changed:
            if not self._blocks:
                self._widen()
            while not self._blocks:
                self._changed.wait()
            if self._blocks[0][0] is None:
                return None
            block, size = self._blocks.popleft()
            self._held -= size
            self._changed.notify_all()
            return block

    def widen(self) -> None:
        """Let more be under way: the loop had to wait."""
        with self._changed:
            self._widen()
            self._changed.notify_all()

    def _widen(self) -> None:
        self._limit = min(self._most, 2 * self._limit)

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._blocks.clear()
            self._blocks.append((None, 0))
            self._changed.notify_all()


class _Tasks:
    """Tasks for threads, in the order they came; None ends one."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Optional[Task]] = SimpleQueue()
        self.get, self.put, self.append = self._tasks.get, self._tasks.put, self._tasks.put


def _run_tasks(take: Callable[[], Optional[Task]], queue: _Queue) -> None:
    """Run tasks until there are no more; what has not begun when the loop ends is left out."""
    while True:
        task = take()
        if task is None:
            return
        if not queue.stopped:
            task()
        del task
