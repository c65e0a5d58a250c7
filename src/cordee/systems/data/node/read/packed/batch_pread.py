"""Many reads at once: a block of stretches is read by `os.pread` in several threads, which let go of the interpreter's lock."""

from __future__ import annotations

import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Sequence, Union

from cordee.systems.data.node.read.counters import ReadCounts

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# A thread is worth waking for so many bytes: a tenth of a millisecond of copying.
_LEAST_PART_BYTES = 1 << 20
MOST_THREADS = 4


class PendingRead:
    """What a thread is reading."""

    def __init__(self) -> None:
        self._answers: SimpleQueue[Any] = SimpleQueue()

    def give(self, result: "Union[list[bytes], BaseException]", began: float, ended: float) -> None:
        """Let go whoever waits."""
        self._answers.put((result, began, ended))

    def wait(self) -> tuple[list[bytes], float, float]:
        """Return, once, the stretches and when their reading began and ended (`time.perf_counter`).

        Raises:
            OSError: storage failed.
        """
        result, began, ended = self._answers.get()
        if isinstance(result, BaseException):
            raise result
        return result, began, ended


class ManyReads:
    """Reads lists of stretches in threads, in the process that made it; called by one thread at a time.

    Args:
        threads: that read.
    """

    def __init__(self, threads: int) -> None:
        self.threads = max(1, min(MOST_THREADS, threads))
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._helpers: list[threading.Thread] = []
        self._counting = threading.Lock()
        self._busy_until = 0.0

    def start(
        self,
        files: Sequence[int],
        sizes: Sequence[int],
        begins: Sequence[int],
        done: Callable[[], None] = lambda: None,
    ) -> PendingRead:
        """Begin to read stretches of open files in a thread, as `read` does.

        Args:
            done: called by the thread when the files are not needed any more, whether or not somebody waits.
        """
        if len(self._helpers) < self.threads:
            self._helpers.append(
                threading.Thread(target=_work, args=(self._tasks,), name="cordee-read-many", daemon=True)
            )
            self._helpers[-1].start()
        answer = PendingRead()
        self._tasks.put((answer, done, files, sizes, begins))
        return answer

    def read(self, files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
        """Return stretches of open files, each shorter than asked for where its file ends; large lists in all threads.

        Raises:
            OSError: storage failed.
        """
        parts = min(self.threads, len(files), sum(sizes) // _LEAST_PART_BYTES)
        if parts < 2:
            return read_here(files, sizes, begins)
        step = -(-len(files) // parts)
        others = [
            self.start(files[at : at + step], sizes[at : at + step], begins[at : at + step])
            for at in range(step, len(files), step)
        ]
        found = read_here(files[:step], sizes[:step], begins[:step])
        for other in others:
            found += other.wait()[0]
        return found

    def count(self, counts: ReadCounts, sizes: "Array", began: float, ended: float) -> None:
        """Count requests of `sizes` bytes and what of their time no others had: that in which several are under way counts once."""
        with self._counting:
            begin, self._busy_until = max(began, self._busy_until), max(ended, self._busy_until)
            counts.block(sizes, max(0.0, self._busy_until - begin))

    def close(self) -> None:
        """End the threads when they have read what was begun."""
        for _ in self._helpers:
            self._tasks.put(None)
        for helper in self._helpers:
            helper.join()
        self._helpers.clear()


def read_here(files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
    """Return stretches as `ManyReads.read` does, read by the thread that calls; several may at once.

    Raises:
        OSError: storage failed.
    """
    return list(map(os.pread, files, sizes, begins))


def _work(tasks: "SimpleQueue[Any]") -> None:
    """Run by a thread."""
    while True:
        task = tasks.get()
        if task is None:
            return
        answer, done, *stretches = task
        began = time.perf_counter()
        try:
            result: Any = read_here(*stretches)
        except BaseException as error:
            result = error
        done()
        answer.give(result, began, time.perf_counter())
        del task, answer, done, stretches, result  # what was read, and whose it is, is not kept until the next request
