"""The file of a token set's tokens, on a file system or in an object store."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Iterator, Optional, Union

from cordee.core.errors import CorruptDataError, DataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.read.ahead.fetcher import OBJECTS
from cordee.systems.data.node.read.ahead.threads import Threads
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.deferred_close import ENDING, close_elsewhere
from cordee.systems.data.node.read.packed.files import read_whole
from cordee.systems.data.node.read.tokens.index import TokenIndex
from cordee.systems.data.node.read.tokens.windows import Answer, WindowShape

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# Ranges that are so near to each other are one advice, of at most this size.
_NEAR_BYTES, _MOST_BYTES = 64 << 10, 16 << 20
# The kernel takes no more of one advice than the device's largest request (mm/readahead.c, force_page_cache_ra).
_ADVICE_BYTES = 512 << 10


class TokenFile:
    """A `.bin` on a file system: read when the bytes are waited for; the kernel is told what comes."""

    _ending = ENDING
    # Of a gap of a few pages, most would be read for the windows beside it anyway.
    shape = WindowShape(near_bytes=8 << 10, waste_bytes=8 << 20, request_bytes=4 << 20, early=False)

    def __init__(self, index: TokenIndex, counts: ReadCounts) -> None:
        self._index, self._counts = index, counts
        try:
            self._file = regular(index.bin_path)
        except OSError as error:
            raise self._failed(error) from None
        self._process = os.getpid()
        counts.opens += 1

    def ask(self, offset: int, size: int) -> Answer:
        """Return what reads a stretch, once."""
        return _Stretch(self, offset, size)

    def advise(self, begins: "Array", ends: "Array") -> None:
        """Have the kernel read what comes next, in the file's order, while the training works."""
        if not hasattr(os, "posix_fadvise"):
            return
        order = begins.argsort(kind="stable")
        ranges = list(_merged(begins[order], ends[order]))
        self._counts.advised += len(ranges)
        self._counts.advised_bytes += sum(size for _, size in ranges)
        # A copy of the descriptor, because this one may be closed meanwhile.
        threading.Thread(target=_advise, args=(os.dup(self._file), ranges), daemon=True).start()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0 and self._process == os.getpid():
            os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        if not self._ending() and hasattr(self, "_process"):
            self.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return a stretch.

        Raises:
            DataError: storage failed. CorruptDataError: the file has become shorter.
        """
        began = time.perf_counter()
        try:
            data = read_whole(self._file, offset, size)
        except OSError as error:
            raise self._failed(error) from None
        if len(data) < size:
            raise CorruptDataError(
                "the tokens end before their index says so",
                given=f"{self._index.bin_path}, byte {offset + len(data)}",
                allowed=f"{self._index.tokens * self._index.item_bytes} bytes",
                next="the file was cut off while it was read; copy it again from where it was packed",
            )
        self._counts.request(size, time.perf_counter() - began)
        return data

    def _failed(self, error: OSError) -> DataError:
        return DataError(
            f"the tokens cannot be read: {error.strerror}",
            given=self._index.bin_path,
            next="see whether the file system is well; the training continues from its checkpoint",
        )


class _Stretch:
    """A stretch that is read when it is first asked for, and lives as long as who asked."""

    __slots__ = ("_data", "_file", "_offset", "_size")

    def __init__(self, file: TokenFile, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size
        self._data: Optional[bytes] = None

    def __call__(self) -> bytes:
        if self._data is None:
            self._data = self._file.read(self._offset, self._size)
        return self._data


class TokenObject:
    """A `.bin` in an object store: ranges are read by threads, before they are waited for."""

    _ending = ENDING
    shape = WindowShape(near_bytes=1 << 20, waste_bytes=8 << 20, request_bytes=8 << 20, early=True)

    def __init__(self, index: TokenIndex, counts: ReadCounts) -> None:
        from cordee.systems.data.node.read.remote import Objects

        folder, _, name = index.bin_path.rpartition("/")
        objects = Objects(folder)
        self._threads = Threads(lambda _, offset, size: objects.read(name, offset, size), counts, OBJECTS.threads)
        self._process = os.getpid()
        counts.opens += 1

    def ask(self, offset: int, size: int) -> Answer:
        """Begin to read a stretch; return what waits for it."""
        return Fetched(self._threads.ask(0, offset, size))

    def advise(self, begins: "Array", ends: "Array") -> None:
        """Nothing: requests are made early."""

    def close(self) -> None:
        """End the threads."""
        self._process = 0
        self._threads.close()

    def __del__(self) -> None:
        if not self._ending() and getattr(self, "_process", 0) == os.getpid():
            close_elsewhere(self._threads.close)


class Fetched:
    """A stretch that threads read; one that nobody waits for any more is left out."""

    __slots__ = ("_future",)

    def __init__(self, future: "Future[bytes]") -> None:
        self._future = future

    def __call__(self) -> bytes:
        return self._future.result()

    def __del__(self) -> None:
        self._future.cancel()


def open_tokens(index: TokenIndex, counts: ReadCounts) -> Union[TokenFile, TokenObject]:
    """Return the tokens of an index, opened.

    Raises:
        DataError: they cannot be. UsageError: a forked process would read from an object store.
    """
    return TokenObject(index, counts) if "://" in index.path else TokenFile(index, counts)


def _merged(begins: "Array", ends: "Array") -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of sorted ranges, near ones as one."""
    offset = until = -1
    for begin, end in zip(begins.tolist(), ends.tolist()):
        if until >= 0 and begin - until <= _NEAR_BYTES and end - offset <= _MOST_BYTES:
            until = max(until, end)
            continue
        if until >= 0:
            yield offset, until - offset
        offset, until = begin, end
    if until >= 0:
        yield offset, until - offset


def _advise(file: int, ranges: list[tuple[int, int]]) -> None:
    try:
        for begin, size in ranges:
            for offset in range(begin, begin + size, _ADVICE_BYTES):
                os.posix_fadvise(file, offset, min(_ADVICE_BYTES, begin + size - offset), os.POSIX_FADV_WILLNEED)
    except OSError:
        return  # only advice: the read itself says what is wrong
    finally:
        os.close(file)
