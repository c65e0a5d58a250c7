"""Collects where fields lie while a shard is written or walked through, and makes the columns of its index of it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cordee.systems.data.node.shards.index import NO_LABEL

if TYPE_CHECKING:
    import numpy


class ShardColumns:
    """The samples of one shard in their order: call `field` for each field of a sample, then `sample`."""

    def __init__(self) -> None:
        self.samples = 0
        self.bytes = 0
        # Appended to directly where every microsecond counts.
        self.rows, self.numbers, self.crcs = array("q"), array("q"), array("L")
        self.offsets, self.lengths, self.labels = array("q"), array("q"), array("q")
        self.keys: list[bytes] = []

    def field(self, number: int, offset: int, length: int, crc: int) -> None:
        """Note a field of the sample that comes next."""
        self.rows.append(self.samples)
        self.numbers.append(number)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.crcs.append(crc)
        self.bytes += length

    def sample(self, key: bytes, label: int | None) -> None:
        """Note a sample whose fields are noted."""
        self.labels.append(NO_LABEL if label is None else label)
        self.keys.append(key)
        self.samples += 1

    def forget_fields(self, count: int) -> None:
        """Keep the first `count` fields; the samples they belong to are all noted."""
        self.bytes -= sum(self.lengths[count:])
        for column in (self.rows, self.numbers, self.crcs, self.offsets, self.lengths):
            del column[count:]

    def arrays(self, fields: Sequence[str], with_crc: bool = True) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return the columns; a field's number is its place in `fields`."""
        import numpy

        shape = (self.samples, len(fields))
        offset = numpy.zeros(shape, "<u8")
        length = numpy.full(shape, -1, "<i8")
        crc = numpy.zeros(shape, "<u4")
        where = numpy.asarray(self.rows, "i8"), numpy.asarray(self.numbers, "i8")
        offset[where] = numpy.asarray(self.offsets, "<u8")
        length[where] = numpy.asarray(self.lengths, "<i8")
        crc[where] = numpy.asarray(self.crcs, "<u4")
        sizes = numpy.fromiter(map(len, self.keys), "<u8", self.samples)
        found = {
            "shard": numpy.zeros(self.samples, "<u4"),
            "offset": offset,
            "length": length,
            "key_end": numpy.cumsum(sizes, dtype="<u8"),
            "keys": numpy.frombuffer(b"".join(self.keys), "u1"),
        }
        labels = numpy.asarray(self.labels, "<i8")
        if (labels != NO_LABEL).any():
            found["label"] = labels
        return {**found, "crc32": crc} if with_crc else found
