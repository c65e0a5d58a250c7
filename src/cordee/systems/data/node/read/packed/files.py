"""The shards of one index as open files: few at a time, each compared with the index when it is first opened."""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from functools import partial
from typing import Iterable, Optional

from cordee.core.errors import DataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.packed.check import check_shard
from cordee.systems.data.node.shards.index import ShardIndex

_MOST_OPEN = 1024


class Files:
    """Open shards, the longest unused closed first; safe to use from several threads.

    Args:
        counts: where opens are counted.
        most: files kept open at once; by default a quarter of what the process may open.
        cut_off_too: shards that are cut off are opened too.
    """

    def __init__(
        self, index: ShardIndex, counts: ReadCounts, most: Optional[int] = None, *, cut_off_too: bool = False
    ) -> None:
        self.index = index
        self.most = most or max(4, min(_MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._counts = counts
        self._cut_off_too = cut_off_too
        self._lock = threading.Lock()
        self._open: OrderedDict[int, int] = OrderedDict()
        self._borrowed: dict[int, int] = {}
        self._checked: set[int] = set()
        self._stale: list[int] = []
        self._closed = False

    def borrow(self, shards: Iterable[int]) -> dict[int, int]:
        """Return file descriptors by shard (each named once); none is closed before `give_back` with the same shards.

        Raises:
            OSError: storage failed. DataError: a shard cannot be opened, or the files were closed.
        """
        found: dict[int, int] = {}
        with self._lock:
            if self._closed:
                raise DataError(
                    "the data set was closed while it was read",
                    given=self.index.path,
                    next="close it when every loop over it has ended",
                )
            try:
                for shard in shards:
                    number = self._open.get(shard)
                    found[shard] = self._opened(shard) if number is None else number
                    self._open.move_to_end(shard)
                    self._borrowed[shard] = self._borrowed.get(shard, 0) + 1
            except BaseException:
                self._returned(found)
                raise
        return found

    def give_back(self, shards: Iterable[int]) -> None:
        """Let shards be closed again."""
        with self._lock:
            self._returned(shards)

    def reopen(self, shard: int) -> None:
        """Open a shard anew at the next use: its file was replaced on a network file system."""
        with self._lock:
            if shard in self._open:
                self._stale.append(self._open.pop(shard))  # another thread may be reading by it

    def read(self, shard: int, offset: int, length: int) -> bytes:
        """Return a stretch of a shard, shorter where the shard ends.

        Raises:
            OSError: storage failed. DataError: the shard cannot be opened.
        """
        number = self.borrow([shard])[shard]
        try:
            return read_whole(number, offset, length)
        finally:
            self.give_back([shard])

    def close(self) -> None:
        """Open no more files and close all: those that another thread is reading by when it gives the last one back."""
        with self._lock:
            self._closed = True
            self._close_unused()

    def _close_unused(self) -> None:
        """Close what is open, unless something is borrowed: a number that is closed may soon be another file's."""
        if self._borrowed:
            return
        for number in [*self._open.values(), *self._stale]:
            os.close(number)
        self._open.clear()
        self._stale.clear()

    def _returned(self, shards: Iterable[int]) -> None:
        for shard in shards:
            self._borrowed[shard] -= 1
            if not self._borrowed[shard]:
                del self._borrowed[shard]
        if self._closed:
            self._close_unused()
        elif len(self._open) > self.most:
            for shard in [shard for shard in self._open if shard not in self._borrowed][: len(self._open) - self.most]:
                os.close(self._open.pop(shard))

    def _opened(self, shard: int) -> int:
        path = self.index.shard_path(shard)
        try:
            number = regular(path)
        except OSError as error:
            raise DataError(
                f"a shard cannot be opened: {error.strerror}",
                given=path,
                allowed=f"the {len(self.index.shards)} shards that {self.index.path} names, readable by you",
                next="copy the missing shard back, or pack again: `cordee data verify` names all that is missing",
            ) from None
        self._counts.opens += 1
        try:
            if shard not in self._checked:
                size = os.fstat(number).st_size
                check_shard(self.index, shard, size, partial(read_whole, number), self._cut_off_too)
                self._checked.add(shard)
        except OSError as error:
            os.close(number)
            raise DataError(
                f"storage failed when a shard was first read: {error.strerror}",
                given=path,
                next="look at the file system; the job continues from its last checkpoint when it is back",
            ) from None
        except BaseException:
            os.close(number)
            raise
        self._open[shard] = number
        return number


def read_whole(number: int, offset: int, length: int) -> bytes:
    """Return `length` bytes at `offset`, fewer only at the file's end; one read may give less than it was asked for."""
    data = os.pread(number, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    while data and length > sum(map(len, parts)):
        got = sum(map(len, parts))
        data = os.pread(number, length - got, offset + got)
        parts.append(data)
    return b"".join(parts)
