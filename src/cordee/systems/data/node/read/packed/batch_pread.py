"""Many reads in one call: the kernel answers a whole block while the interpreter's lock is free, in several threads.

A loop over `os.pread` takes and gives the interpreter's lock for every sample, and waits for it while the training's thread
computes in Python. Linux' asynchronous reads (`io_submit`, https://man7.org/linux/man-pages/man2/io_submit.2.html) take a
list: for files that are read through the page cache the answers lie in memory when the call returns. Where they are not to
be had (another system or interpreter, a container that forbids the call) it is the loop.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
import time
from functools import lru_cache
from itertools import repeat
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Sequence, Union

from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.deferred_close import ENDING

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# io_setup, io_destroy, io_submit, io_getevents: include/uapi/asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
# struct iocb and struct io_event of include/uapi/linux/aio_abi.h, little-endian; opcode 0 is IOCB_CMD_PREAD.
_IOCB = [
    ("data", "<u8"), ("key", "<u4"), ("rw_flags", "<u4"), ("opcode", "<u2"), ("priority", "<i2"), ("file", "<u4"),
    ("buffer", "<u8"), ("bytes", "<u8"), ("offset", "<i8"), ("reserved", "<u8"), ("flags", "<u4"), ("notify", "<u4"),
]  # fmt: skip
_IOCB_BYTES = 64
_EVENT = [("data", "<u8"), ("iocb", "<u8"), ("result", "<i8"), ("result2", "<i8")]
_MOST_AT_ONCE = 256
# Fewer are not worth the call.
_LEAST_AT_ONCE = 4
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
    """Reads lists of stretches in threads, in the process that made it; all but `read_here` by one thread at a time.

    Args:
        threads: that read.
    """

    def __init__(self, threads: int) -> None:
        self._lists = _Lists.opened()
        # Where every stretch is a call of its own, more threads only take the interpreter's lock from each other.
        self.threads = max(1, min(MOST_THREADS, threads)) if self._lists else 1
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._helpers: list[threading.Thread] = []
        self._own = threading.local()
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
        parts = min(self.threads, len(files) // _LEAST_AT_ONCE, sum(sizes) // _LEAST_PART_BYTES)
        if parts < 2:
            return _read(self._lists, files, sizes, begins)
        step = -(-len(files) // parts)
        others = [
            self.start(files[at : at + step], sizes[at : at + step], begins[at : at + step])
            for at in range(step, len(files), step)
        ]
        found = _read(self._lists, files[:step], sizes[:step], begins[:step])
        for other in others:
            found += other.wait()[0]
        return found

    def read_here(self, files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
        """Return stretches as `read` does, read by the thread that calls; several may at once.

        Raises:
            OSError: storage failed.
        """
        if not hasattr(self._own, "lists"):
            self._own.lists = _Lists.opened()
        return _read(self._own.lists, files, sizes, begins)

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


def _work(tasks: "SimpleQueue[Any]") -> None:
    """Run by a thread, with a list of its own."""
    lists = _Lists.opened()
    while True:
        task = tasks.get()
        if task is None:
            return
        answer, done, *stretches = task
        began = time.perf_counter()
        try:
            result: Any = _read(lists, *stretches)
        except BaseException as error:
            result = error
        done()
        answer.give(result, began, time.perf_counter())
        del task, answer, done, stretches, result  # what was read, and whose it is, is not kept until the next request


def _read(lists: "Optional[_Lists]", files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
    if lists is None or len(files) < _LEAST_AT_ONCE:
        return list(map(os.pread, files, sizes, begins))
    return lists.read(files, sizes, begins)


class _Calls(NamedTuple):
    """The kernel's calls, by number, and the interpreter's for bytes that are filled later."""

    call: Callable[..., int]
    setup: int
    destroy: int
    submit: int
    events: int
    empty_bytes: Callable[[Optional[bytes], int], bytes]


@lru_cache(maxsize=None)
def _calls() -> Optional[_Calls]:
    """Return the calls; None where there are none, or bytes do not lie as CPython's do."""
    numbers = _CALLS.get(platform.machine())
    if not numbers or sys.platform != "linux" or sys.implementation.name != "cpython" or sys.byteorder != "little":
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    empty_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
    empty_bytes.restype, empty_bytes.argtypes = ctypes.py_object, [ctypes.c_char_p, ctypes.c_ssize_t]
    tried = empty_bytes(None, 16)
    ctypes.memmove(id(tried) + _BEFORE_BYTES, b"0123456789abcdef", 16)
    return _Calls(call, *numbers, empty_bytes) if tried == b"0123456789abcdef" else None


# What stands before an object's bytes; its size counts one byte for the zero at their end.
_BEFORE_BYTES = bytes.__basicsize__ - 1


class _Lists:
    """One list of asynchronous reads of the kernel's, which is given back with the object."""

    _ending = ENDING

    def __init__(self, calls: _Calls, context: int) -> None:
        import numpy

        self._calls, self._context = calls, context
        self._requests: Array = numpy.zeros(_MOST_AT_ONCE, _IOCB)
        self._events: Array = numpy.zeros(_MOST_AT_ONCE, _EVENT)
        self._pointers: Array = self._requests.ctypes.data + _IOCB_BYTES * numpy.arange(
            _MOST_AT_ONCE, dtype=numpy.uint64
        )
        self._process = os.getpid()

    @classmethod
    def opened(cls) -> "Optional[_Lists]":
        """Return a list; None where the kernel gives none."""
        calls = _calls()
        if calls is None:
            return None
        context = ctypes.c_ulong(0)
        if calls.call(calls.setup, ctypes.c_long(_MOST_AT_ONCE), ctypes.byref(context)):
            return None
        return cls(calls, context.value)

    def __del__(self) -> None:
        if not self._ending() and os.getpid() == self._process:
            self._calls.call(self._calls.destroy, ctypes.c_ulong(self._context))

    def read(self, files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
        """Return stretches as `ManyReads.read` does."""
        found: list[bytes] = []
        for at in range(0, len(files), _MOST_AT_ONCE):
            to = at + _MOST_AT_ONCE
            found += self._some(files[at:to], sizes[at:to], begins[at:to])
        return found

    def _some(self, files: Sequence[int], sizes: Sequence[int], begins: Sequence[int]) -> list[bytes]:
        import numpy

        count = len(files)
        found = list(map(self._calls.empty_bytes, repeat(None), sizes))
        requests = self._requests[:count]
        requests["file"], requests["bytes"], requests["offset"] = files, sizes, begins
        requests["buffer"] = numpy.fromiter(map(id, found), numpy.uint64, count) + numpy.uint64(_BEFORE_BYTES)
        requests["data"] = numpy.arange(count)
        submitted = 0
        try:
            while submitted < count:
                submitted += self._submit(submitted, count)
        finally:  # while a request is under way its bytes must not be freed
            self._take(submitted)
        results = self._events["result"][:count]
        results = results[numpy.argsort(self._events["data"][:count])]
        for place in numpy.flatnonzero(results != requests["bytes"].astype(numpy.int64)).tolist():
            if results[place] < 0:
                raise OSError(-int(results[place]), os.strerror(-int(results[place])))
            found[place] = found[place][: int(results[place])]
        return found

    def _submit(self, first: int, count: int) -> int:
        calls = self._calls
        begin = ctypes.c_void_p(int(self._pointers.ctypes.data) + 8 * first)
        taken = calls.call(calls.submit, ctypes.c_ulong(self._context), ctypes.c_long(count - first), begin)
        if taken > 0:
            return taken
        raise OSError(ctypes.get_errno() or errno.EAGAIN, os.strerror(ctypes.get_errno() or errno.EAGAIN))

    def _take(self, count: int) -> None:
        calls, taken = self._calls, 0
        while taken < count:
            left = ctypes.c_long(count - taken)
            into = ctypes.c_void_p(int(self._events.ctypes.data) + self._events.itemsize * taken)
            taken += max(0, calls.call(calls.events, ctypes.c_ulong(self._context), left, left, into, None))
