"""The seam of formats: how one shard is laid out; driving, resuming and the index are the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cordee.systems.data.node.shards.entries import PackedEntry, Sample
from cordee.systems.data.node.shards.index import NO_LABEL

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.pack._base import PackPlan

# Called with (samples, bytes) that were written since the last call.
Tick = Callable[[int, int], None]


class Which(NamedTuple):
    """Which shard is written.

    Attributes:
        cuts: (first, last + 1) of every shard's samples.
        number: of this one.
        rows: where in it each sample that is written stands; those between are left out.
    """

    cuts: Sequence[tuple[int, int]]
    number: int
    rows: Sequence[int]


class Placed:
    """Where the samples of a shard lie in it: what its part of the index is made of."""

    def __init__(self, samples: int, fields: Sequence[str]) -> None:
        import numpy

        shape = (samples, len(fields))
        self._fields = {field: at for at, field in enumerate(fields)}
        self._offset = numpy.zeros(shape, "<u8")
        self._length = numpy.full(shape, -1, "<i8")
        self._crc32 = numpy.zeros(shape, "<u4")

    def put(self, row: int, sample: Sample, entry: PackedEntry, offset: int, crc32: int) -> None:
        """Note where an entry's bytes begin, and their check sum."""
        at = row, self._fields[sample.fields[sample.entries.index(entry)]]
        self._offset[at], self._length[at], self._crc32[at] = offset, entry.length, crc32

    def columns(self, samples: Sequence[Sample]) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return the columns of the shard's index."""
        import numpy

        ends = numpy.cumsum([len(sample.key) for sample in samples], dtype="<u8")
        labels = [NO_LABEL if sample.label is None else sample.label for sample in samples]
        return {
            "offset": self._offset,
            "length": self._length,
            "crc32": self._crc32,
            "label": numpy.array(labels, "<i8"),
            "key_end": ends,
            "keys": numpy.frombuffer(b"".join(sample.key for sample in samples), "u1"),
        }


class PackFormat(ABC):
    """One way to lay out samples in files. `write` is called by several processes or threads at once.

    Attributes:
        name: after `--as`.
        files: a regular expression of the names of the files that it makes.
    """

    name: str
    files: str

    @abstractmethod
    def shard(self, data_set: str, number: int) -> str:
        """Return a shard's name below the data set's folder."""

    @abstractmethod
    def write(self, path: str, plan: PackPlan, samples: list[Sample], which: Which, tick: Tick) -> Placed:
        """Write one shard to the new file `path`; two calls with the same samples write the same bytes.

        Raises:
            Unreadable: an entry cannot be read. DataError: a sample does not fit into the format.
        """

    def cut(self, plan: PackPlan, shard_bytes: int) -> list[tuple[int, int]]:
        """Return (first, last + 1) of each shard's samples."""
        cuts, begin, size = [], 0, 0
        for number, sample in enumerate(plan.samples()):
            length = sum(entry.length for entry in sample.entries)
            if size and size + length > shard_bytes:
                cuts.append((begin, number))
                begin, size = number, 0
            size += length
        return [*cuts, (begin, len(plan))]

    def finish(self, plan: PackPlan, cuts: Sequence[tuple[int, int]]) -> dict[str, bytes]:
        """Return the small files that describe all shards, by their names below the data set's folder."""
        return {}
