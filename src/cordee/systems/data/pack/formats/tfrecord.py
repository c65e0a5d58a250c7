"""TFRecord files of `tf.train.Example`, written without TensorFlow.

A record is u64 length, its masked CRC-32C, the bytes, theirs (tensorflow.org/api_guides/python/python_io, "TFRecords
Format Details"). The example is protocol buffers' wire format, written by hand: a map from names to lists of bytes or of
integers (tensorflow/core/example/feature.proto). Each field is a feature that holds the file's bytes; `__key__` is the
sample's key, `label` its class. Beside each file lies `NAME.idx`, a line of offset and length per record, as NVIDIA DALI and
the package `tfrecord` want it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import PackedEntry, Sample
from cordee.systems.data.pack.formats._base import PackFormat, Placed, Tick, Which
from cordee.systems.data.pack.formats.content import pieces, write_at
from cordee.systems.data.pack.formats.target import FormatTarget
from cordee.systems.data.pack.origins.tfrecords import KEY, LABEL, masked

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

_LARGEST_BYTES = (1 << 31) - 1
_BYTES, _INTEGERS = 0x0A, 0x1A  # of a feature: field 1 and field 3, both with a length


class TFRecord(PackFormat):
    """Shards of records; a record is a sample."""

    name = "tfrecord"
    files = r".*-\d{6}\.(tfrecord|idx)"

    def shard(self, data_set: str, number: int) -> str:
        return f"{data_set}-{number:06}.tfrecord"

    def write(self, path: str, plan: PackPlan, samples: list[Sample], which: Which, tick: Tick) -> Placed:
        placed = Placed(len(samples), plan.fields)
        lines = []
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            at = 0
            for row, sample in enumerate(samples):
                end = self._record(descriptor, at, plan, sample, row, placed)
                lines.append(f"{at} {end - at}\n")
                at = end
                tick(1, sum(entry.length for entry in sample.entries))
        finally:
            os.close(descriptor)
        placed.beside[".idx"] = "".join(lines).encode()
        return placed

    def _record(self, descriptor: int, at: int, plan: PackPlan, sample: Sample, row: int, placed: Placed) -> int:
        from google_crc32c import extend, value

        parts = list(_example(sample))
        length = sum(part.length if isinstance(part, PackedEntry) else len(part) for part in parts)
        if length > _LARGEST_BYTES:
            raise DataError(
                "a sample is larger than a tf.train.Example can be",
                given=f"{sample.key.decode('utf-8', 'backslashreplace')}: {length} bytes",
                allowed=f"{_LARGEST_BYTES} bytes",
                next="pack into WebDataset shards, which hold any size",
            )
        head = struct.pack("<Q", length)
        head += masked(value(head))
        os.pwrite(descriptor, head, at)
        at, check = at + len(head), 0
        for part in parts:
            if isinstance(part, PackedEntry):
                content = _Summed(pieces(plan, part), check)
                placed.put(row, sample, part, at, write_at(descriptor, at, content))
                at, check = at + part.length, content.check
            else:
                os.pwrite(descriptor, part, at)
                at, check = at + len(part), extend(check, part)
        os.pwrite(descriptor, masked(check), at)
        return at + 4


class _Summed:
    """Pieces on their way; `check` is the CRC-32C of all before and of those that have passed."""

    def __init__(self, content: Iterator[bytes], check: int) -> None:
        self._content, self.check = content, check

    def __iter__(self) -> Iterator[bytes]:
        from google_crc32c import extend

        for piece in self._content:
            self.check = extend(self.check, piece)
            yield piece


def _example(sample: Sample) -> Iterator[bytes | PackedEntry]:
    """Give an example's bytes in order; entries stand for their contents."""
    features: list[list[bytes | PackedEntry]] = [_feature(KEY, [sample.key])]
    for field, entry in zip(sample.fields, sample.entries, strict=True):
        features.append(_feature(field, [entry]))
    if sample.label is not None and LABEL not in sample.fields:
        features.append(_integer(LABEL, sample.label))
    yield b"\x0a" + _varint(sum(map(_size, features)))
    for feature in features:
        yield from feature


def _feature(name: str, content: list[bytes | PackedEntry]) -> list[bytes | PackedEntry]:
    """Return one entry of the map: 1: name, 2: a feature whose list of bytes has one value."""
    size = _size(content)
    values = b"\x0a" + _varint(size)
    listed = bytes([_BYTES]) + _varint(len(values) + size) + values
    return _entry(name, listed, content)


def _integer(name: str, number: int) -> list[bytes | PackedEntry]:
    packed = _varint(number & (1 << 64) - 1)
    values = b"\x0a" + _varint(len(packed)) + packed
    return _entry(name, bytes([_INTEGERS]) + _varint(len(values)) + values, [])


def _entry(name: str, listed: bytes, content: list[bytes | PackedEntry]) -> list[bytes | PackedEntry]:
    text = name.encode("utf-8", "surrogateescape")
    feature = len(listed) + _size(content)
    inner = b"\x0a" + _varint(len(text)) + text + b"\x12" + _varint(feature)
    return [b"\x0a" + _varint(len(inner) + feature) + inner + listed, *content]


def _size(parts: list[bytes | PackedEntry]) -> int:
    return sum(part.length if isinstance(part, PackedEntry) else len(part) for part in parts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


TARGET = FormatTarget(TFRecord())
