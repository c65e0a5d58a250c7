"""Where the chosen fields of samples lie: the index's columns as a block of samples needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from cordee.systems.data.node.shards.index import NO_LABEL, ShardIndex

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# Fields of a sample are read together when what else lies between them is little.
_GAP_BYTES = 16 << 10
_GAP_SHARE = 8
# Columns of larger data sets stay mapped from the file.
_COPIED_BYTES = 64 << 20


class SampleBlock(NamedTuple):
    """Samples in the order asked for: `begins` and `ends` of all their fields, and the offset and length of each field.

    `together` says which samples are read in one request; None: all.
    """

    shards: "Array"
    begins: "Array"
    ends: "Array"
    offsets: "Array"
    lengths: "Array"
    together: "Optional[Array]"


class ShardPieces(NamedTuple):
    """Stretches of shards; `owners` says which sample of the block each belongs to."""

    owners: "Array"
    shards: "Array"
    begins: "Array"
    ends: "Array"


class PackedLayout:
    """The columns of some fields, as signed integers; in memory where they are small."""

    def __init__(self, index: ShardIndex, fields: Sequence[str]) -> None:
        import numpy

        self.fields = tuple(fields)
        self._chosen = [index.fields.index(field) for field in fields]
        copied = index.samples * (16 + 16 * len(fields)) <= _COPIED_BYTES
        columns = {name: numpy.asarray(column) for name, column in index.columns.items()}
        self._narrow = copied
        if copied:
            columns.update({name: columns[name][:, self._chosen] for name in ("offset", "length")})
            columns.update({name: columns[name].copy() for name in ("shard", "label") if name in columns})
        self._shard = columns["shard"]
        self._crc32 = columns.get("crc32")  # not there where nobody has read the bytes
        self._offset, self._length = columns["offset"].view("<i8"), columns["length"]
        self._label = columns.get("label")
        self._every_label = self._label is not None and not bool((self._label == NO_LABEL).any())

    def block(self, samples: "Array") -> SampleBlock:
        """Return where samples lie."""
        import numpy

        offsets, lengths = self._offset[samples], self._length[samples]
        if not self._narrow:
            offsets, lengths = offsets[:, self._chosen], lengths[:, self._chosen]
        shards = self._shard[samples]
        if len(self.fields) == 1:
            begins = offsets[:, 0]
            return SampleBlock(shards, begins, begins + numpy.maximum(lengths[:, 0], 0), offsets, lengths, None)
        missing = lengths < 0
        ends = (offsets + lengths).max(axis=1, where=~missing, initial=0)
        begins = offsets.min(axis=1, where=~missing, initial=numpy.iinfo(numpy.int64).max)
        begins = numpy.minimum(begins, ends)
        spans = ends - begins
        wasted = spans - lengths.sum(axis=1, where=~missing)
        together = wasted <= numpy.maximum(_GAP_BYTES, spans // _GAP_SHARE)
        return SampleBlock(shards, begins, ends, offsets, lengths, None if together.all() else together)

    def pieces(self, block: SampleBlock) -> ShardPieces:
        """Return the stretches to read: one for each sample whose fields lie together, else one for each field."""
        import numpy

        count = len(block.shards)
        if block.together is None:
            return ShardPieces(numpy.arange(count), block.shards, block.begins, block.ends)
        apart = ~block.together[:, None] & (block.lengths >= 0)
        rows, columns = numpy.nonzero(apart)
        offsets = block.offsets[rows, columns]
        whole = numpy.flatnonzero(block.together)
        owners = numpy.concatenate([whole, rows])
        order = numpy.argsort(owners, kind="stable")
        return ShardPieces(
            owners[order],
            block.shards[owners[order]],
            numpy.concatenate([block.begins[whole], offsets])[order],
            numpy.concatenate([block.ends[whole], offsets + block.lengths[rows, columns]])[order],
        )

    def labels(self, samples: "Array") -> "Union[Array, list[Optional[int]], None]":
        """Return the samples' labels: int64[n], or a list with None where one has none; None when no sample has one."""
        import numpy

        if self._label is None:
            return None
        labels = self._label[samples]
        if self._every_label:
            return labels.astype(numpy.int64)
        return [None if label == NO_LABEL else label for label in labels.tolist()]

    @property
    def has_crc32(self) -> bool:
        """Whether the index knows what the bytes should be."""
        return self._crc32 is not None

    def crc32(self, sample: int) -> dict[str, int]:
        """Return the CRC-32 of a sample's fields; empty where the index has none."""
        if self._crc32 is None:
            return {}
        row = self._crc32[sample]
        return {field: int(row[column]) for field, column in zip(self.fields, self._chosen)}


def assembled(fields: Sequence[str], block: SampleBlock, place: int, parts: Sequence[bytes]) -> dict[str, Any]:
    """Return the fields of one sample of a block from its pieces, in the order of `PackedLayout.pieces`."""
    lengths = block.lengths[place].tolist()
    if block.together is not None and not block.together[place]:
        return dict(zip((field for field, length in zip(fields, lengths) if length >= 0), parts))
    starts = (block.offsets[place] - block.begins[place]).tolist()
    cut = zip(fields, starts, lengths)
    return {field: parts[0][start : start + length] for field, start, length in cut if length >= 0}
