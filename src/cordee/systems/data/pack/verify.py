"""`cordee data verify`: every byte of a packed data set against its index, and every header against both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.read.packed.check import compare_bytes
from cordee.systems.data.node.shards.index import ShardIndex
from cordee.systems.data.node.shards.members import Damaged, TarMember, member_at, padded
from cordee.systems.data.pack._base import CHUNK_BYTES, Tell
from cordee.systems.data.pack.shards.file import TAR, ShardFile, field_crc, open_shard
from cordee.systems.data.pack.shards.indexes import open_index_at
from cordee.systems.data.pack.workers import Jobs, run_all


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong; `sample`, `key` and `field` are None where it is a whole shard."""

    shard: str
    reason: str
    offset: int | None = None
    sample: int | None = None
    key: str | None = None
    field: str | None = None


@dataclass
class PackVerified:
    """What was looked at; `damaged` is empty when all is as it was packed. `checked`: whether contents were, too."""

    path: str
    id: str
    shards: int
    samples: int
    bytes: int
    checked: bool
    seconds: float
    damaged: list[Damage] = field(default_factory=list)

    @property
    def damaged_samples(self) -> int:
        """Return how many samples are named in `damaged`."""
        return len({damage.sample for damage in self.damaged if damage.sample is not None})


class _Row(NamedTuple):
    """A field of a sample as the index has it."""

    offset: int
    length: int
    crc: int
    sample: int
    field: int


def verify(path: str, *, quick: bool = False, workers: int = 1, tell: Tell | None = None) -> PackVerified:
    """Compare a packed data set with its index.

    Args:
        quick: only sizes, the index's own check sums, and of each shard the first and last header and a few samples.

    Raises:
        CorruptDataError: the index itself is damaged. DataError: there is none, or storage does not answer.
    """
    began = time.monotonic()
    index = open_index_at(path)
    work = _Verifying(index, quick)
    found = run_all(
        range(len(index.shards)), work.work, workers, "://" in index.root, tell or (lambda samples, size: None)
    )
    return PackVerified(
        path=path,
        id=index.id,
        shards=len(index.shards),
        samples=index.samples,
        bytes=index.bytes,
        checked=not quick and "crc32" in index.columns,
        seconds=time.monotonic() - began,
        damaged=sorted(
            (damage for some in found for damage in some), key=lambda damage: (damage.shard, damage.offset or 0)
        ),
    )


class _Verifying:
    """What every worker does: one shard after the other."""

    def __init__(self, index: ShardIndex, quick: bool) -> None:
        import numpy

        self._index, self._quick = index, quick
        # Samples stand in the order of their shards.
        numbers = numpy.arange(len(index.shards))
        self._starts = numpy.searchsorted(index.columns["shard"], numbers, side="left").tolist()
        self._stops = numpy.searchsorted(index.columns["shard"], numbers, side="right").tolist()

    def work(self, jobs: Jobs, add: Tell) -> list[Damage]:
        """Return what is wrong with the shards that this worker took."""
        found: list[Damage] = []
        while (number := jobs.take()) is not None:
            about = self._index.shards[number]
            try:
                shard = open_shard(self._index.shard_path(number))
            except DataError as error:
                found.append(Damage(about.name, error.text))
                continue
            try:
                found += self._shard(shard, number, add)
            except DataError as error:
                found.append(Damage(about.name, error.text))
            finally:
                shard.close()
        return found

    def _shard(self, shard: ShardFile, number: int, add: Tell) -> Iterator[Damage]:
        about = self._index.shards[number]
        if shard.size < about.bytes:
            yield Damage(about.name, f"it is cut off: {about.bytes - shard.size} bytes are missing", shard.size)
        elif shard.size > about.bytes:
            yield Damage(about.name, f"it is {shard.size - about.bytes} bytes longer than the index says", about.bytes)
        rows = self._rows(number)
        if rows and self._is_other(shard, rows[0]):
            yield Damage(about.name, "it holds other samples than the index says: the index is of other shards")
            return
        if rows and self._quick and (found := self._compared(shard, number)):
            yield Damage(about.name, found)
        told = 0
        for at in sorted({0, len(rows) - 1}) if self._quick and rows else range(len(rows)):
            row = rows[at]
            before = rows[at - 1].offset + padded(rows[at - 1].length) if at else 0
            reason = self._wrong(shard, before, row)
            if reason is not None:
                key = self._index.key(row.sample)
                yield Damage(about.name, reason, row.offset, row.sample, key, self._index.fields[row.field])
            told += row.length
            if told > CHUNK_BYTES:
                add(0, told)
                told = 0
        add(about.samples, told)

    def _compared(self, shard: ShardFile, number: int) -> str:
        """Return what is wrong with the bytes of a few samples; empty: nothing."""
        samples = range(self._starts[number], self._stops[number])
        try:
            compare_bytes(self._index, number, samples, shard.size, lambda offset, length: shard.read(length, offset))
        except CorruptDataError as error:
            return error.text
        return ""

    def _rows(self, number: int) -> list[_Row]:
        """Return the fields of a shard in the order in which they stand there."""
        import numpy

        start, stop = self._starts[number], self._stops[number]
        columns = self._index.columns
        length = columns["length"][start:stop]
        samples, fields = numpy.nonzero(length >= 0)
        offsets = columns["offset"][start:stop][samples, fields]
        crcs = columns["crc32"][start:stop] if "crc32" in columns else numpy.zeros_like(length)
        order = numpy.argsort(offsets, kind="stable")
        values = (offsets, length[samples, fields], crcs[samples, fields], samples + start, fields)
        return list(map(_Row._make, zip(*(value[order].tolist() for value in values), strict=True)))

    def _wrong(self, shard: ShardFile, position: int, row: _Row) -> str | None:
        """Return what is wrong with a field, None when nothing is; `position`: where the one before it ends."""
        try:
            if not shard.path.endswith(TAR):
                return self._wrong_bytes(shard, row)
            member = self._member(shard, position, row)
            if member is None or (member.offset, member.length) != (row.offset, row.length):
                return "the header before it is damaged"
            if self._name(row) != member.name.decode("utf-8", "surrogateescape").lower():
                return f"another file is there: {member.name.decode('utf-8', 'backslashreplace')}"
            return self._wrong_bytes(shard, row)
        except Damaged as fault:
            return f"the header before it is damaged: {fault.reason}" if fault.offset < row.offset else fault.reason
        return None

    def _wrong_bytes(self, shard: ShardFile, row: _Row) -> str | None:
        if self._quick or "crc32" not in self._index.columns:
            return None if row.offset + row.length <= shard.size else "it is cut off"
        return None if field_crc(shard, row.offset, row.length) == row.crc else "its bytes are damaged"

    def _member(self, shard: ShardFile, position: int, row: _Row) -> TarMember | None:
        """Return the member whose bytes should begin at the row's offset, past those that the index does not know."""
        member = None
        while position < row.offset:
            member = member_at(shard.read, position, shard.size)
            if member is None or member.offset >= row.offset:
                return member
            position = member.end
        return None

    def _name(self, row: _Row) -> str:
        return f"{self._index.key(row.sample)}.{self._index.fields[row.field]}".lower()

    def _is_other(self, shard: ShardFile, first: _Row) -> bool:
        """Say whether a shard begins with whole headers, and yet not with the sample that the index says."""
        if not shard.path.endswith(TAR):
            return False
        try:
            member = self._member(shard, 0, first)
        except Damaged:
            return False
        here = member and (member.offset, member.length, member.name.decode("utf-8", "surrogateescape").lower())
        return here != (first.offset, first.length, self._name(first))
