"""Read-ahead by the kernel: it is told what is read next, and reads that into its cache."""

from __future__ import annotations

import os
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Iterable

from cordee.core.errors import DataError
from cordee.systems.data.node.read.ahead.read_ahead import ReadAhead, merged
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.packed.files import Files
from cordee.systems.data.node.read.packed.layout import PackedLayout

if TYPE_CHECKING:
    from cordee.systems.data.node.read.ahead.read_ahead import Array

_GAP_BYTES = 64 << 10
# The kernel cuts one advice off at the device's largest request or read-ahead, whichever is more
# (mm/readahead.c, force_page_cache_ra); most devices have at least this.
_ADVICE_BYTES = 512 << 10
_PROBES = 16


class Adviser(ReadAhead):
    """Tells the kernel, with POSIX_FADV_WILLNEED, what is read next: nothing is copied, no memory of ours is used."""

    def __init__(self, layout: PackedLayout, limit_bytes: int, files: Files, counts: ReadCounts) -> None:
        super().__init__(layout, limit_bytes)
        self._files = files
        self._counts = counts

    def _ask(self, first: int, window: "Array") -> None:
        try:
            if self._in_memory(window[:: max(1, len(window) // _PROBES)]):
                return
            pieces = self._pieces(window)
            if not len(pieces.owners):
                return
            order, starts, begins, ends = merged(pieces, _GAP_BYTES)
            stretches = zip(pieces.shards[order[starts]].tolist(), begins.tolist(), ends.tolist())
            for shard, some in groupby(stretches, itemgetter(0)):
                self._advise(shard, some)
        except (DataError, OSError):  # advice is only advice; who reads will hear of it
            return

    def _advise(self, shard: int, stretches: Iterable[tuple[int, int, int]]) -> None:
        number = self._files.borrow([shard])[shard]
        try:
            for _, begin, end in stretches:
                if self._closed:
                    return
                self._counts.advised += 1
                self._counts.advised_bytes += end - begin
                for offset in range(begin, end, _ADVICE_BYTES):
                    os.posix_fadvise(number, offset, min(_ADVICE_BYTES, end - offset), os.POSIX_FADV_WILLNEED)
        finally:
            self._files.give_back([shard])

    def _in_memory(self, samples: "Array") -> bool:
        """Say whether all of these are in the kernel's cache: then advice is only work."""
        byte: Any = [bytearray(1)]
        pieces = self._pieces(samples)
        for shard, begin, end in zip(pieces.shards.tolist(), pieces.begins.tolist(), pieces.ends.tolist()):
            if end == begin:
                continue
            number = self._files.borrow([shard])[shard]
            try:
                for offset in (begin, end - 1):
                    os.preadv(number, byte, offset, os.RWF_NOWAIT)
            except OSError:  # not in memory, or a file system that does not say
                return False
            finally:
                self._files.give_back([shard])
        return True
