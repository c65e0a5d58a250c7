"""TFRecord files as a source: a record is a sample, a feature is a field; read without TensorFlow.

Bytes are packed as they are, from where they lie; lists of integers and of numbers become arrays (`.npy`). `__key__` names a
sample where all have one of their own, else its number does; one integer called `label` is its class, or one called
`image/class/label`, which is kept as a field, too. A slash in a feature's name is a dot in the field's: `image.encoded`.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cordee.core.errors import CorruptDataError, DataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample
from cordee.systems.data.node.shards.groups import in_order
from cordee.systems.data.pack._base import SampleOrigin
from cordee.systems.data.pack.origins.rows import fields_of, key_of

if TYPE_CHECKING:
    pass

KEY, LABEL = "__key__", "label"
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3
# The feature that holds the class of a picture, as ours has it and as ImageNet's records do.
_CLASSES = (LABEL, "image/class/label")


class Feature(NamedTuple):
    """A feature of an example: its kind, and where its values lie in the record, as (begin, end) of encoded parts."""

    kind: int
    parts: list[tuple[int, int]]


class _Part(NamedTuple):
    """A feature of a record that becomes a field: its bytes lie in the file at `offset`, or become an array."""

    name: str
    length: int
    offset: int
    is_array: bool


class TFRecordsOrigin(SampleOrigin):
    """The records of some files, in their order.

    Args:
        paths: of the files.
        name: of the data set.
    """

    def __init__(self, paths: Sequence[str], name: str) -> None:
        self.name = name
        self._paths = list(paths)
        self._stamps = [os.stat(each).st_mtime_ns for each in self._paths]
        self._feature_of: dict[str, str] = {}

    def listing(self) -> Listing:
        """Return the features of every record: one record is one sample."""
        found: list[tuple[bytes, int | None, int, list[_Part]]] = []
        for number, path in enumerate(self._paths):
            for begin, record in _records(path):
                found.append(_parts(number, path, begin, record))
        keys = [key for key, _, _, _ in found]
        numbered = b"" in keys or len(set(keys)) < len(keys)
        digits = len(str(max(0, len(found) - 1)))
        names = {(part.name, part.is_array) for *_, parts in found for part in parts}
        fields = fields_of(_ending(name, is_array) for name, is_array in names)
        self._feature_of = {fields[_ending(name, is_array)]: name for name, is_array in names}
        rows = []
        for row, (key, label, number, parts) in enumerate(found):
            if not parts:  # nothing but a key or a label
                continue
            made = b"%0*d" % (digits, row) if numbered else key
            called = tuple(fields[_ending(part.name, part.is_array)] for part in parts)
            entries = [self._entry(made, field, number, part) for field, part in zip(called, parts, strict=True)]
            rows.append(Sample(made, label, called, tuple(entries), False))
        listing = Listing(samples=in_order(rows), fingerprint=str(self._stamps))
        if len(rows) < len(found):
            listing.left_out["records that hold no bytes and no numbers"] = [f"{len(found) - len(rows)} records"]
        return listing

    def _entry(self, key: bytes, field: str, number: int, part: _Part) -> PackedEntry:
        name = key + b"." + field.encode()
        if part.is_array:
            return PackedEntry(name, part.length, offset=part.offset * len(self._paths) + number)
        return PackedEntry(name, part.length, os.fsencode(self._paths[number]), part.offset)

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        begin, number = divmod(entry.offset, len(self._paths))
        path = self._paths[number]
        with open(path, "rb", opener=regular) as file:
            file.seek(begin - 12)
            (length,) = struct.unpack("<Q", file.read(8))
            file.seek(begin)
            record = file.read(length)
        wanted = self._feature_of[entry.name.rpartition(b"/")[2].partition(b".")[2].decode()]
        for name, feature in _features(record, path, begin):
            if name == wanted:
                yield _npy(_values(record, feature))
                return

    def check(self) -> None:
        if self._stamps != [os.stat(path).st_mtime_ns for path in self._paths]:
            raise DataError("a file of records changed while it was packed", given=self.name, next="pack again")


def _parts(number: int, path: str, begin: int, record: bytes) -> tuple[bytes, int | None, int, list[_Part]]:
    """Return key, class, which file, and what becomes fields of a record."""
    key, labels, parts = b"", {}, []
    for name, feature in _features(record, path, begin):
        if feature.kind == _BYTES and len(feature.parts) == 1:
            start, end = feature.parts[0]
            if name == KEY:
                key = key_of(record[start:end])
            else:
                parts.append(_Part(name, end - start, begin + start, False))
            continue
        values = _values(record, feature)
        if name in _CLASSES and feature.kind == _INTEGERS and len(values) == 1:
            labels[name] = int(values[0])
            if name == LABEL:
                continue
        parts.append(_Part(name, len(_npy(values)), begin, True))
    return key, next((labels[name] for name in _CLASSES if name in labels), None), number, parts


def _ending(name: str, is_array: bool) -> str:
    return f"{name}.npy" if is_array else name


def _records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield where each record's bytes begin, and them.

    Raises:
        CorruptDataError: a check sum is wrong, or the file is cut off. DataError: it is compressed.
    """
    from google_crc32c import value

    with open(path, "rb", opener=regular) as file:
        at = 0
        while head := file.read(12):
            if at == 0 and head[:2] == b"\x1f\x8b":
                raise DataError(
                    "the records are compressed by gzip, and are read where they lie",
                    given=path,
                    allowed="TFRecord files without compression",
                    next="decompress them first: gunzip",
                )
            if len(head) < 12 or masked(value(head[:8])) != head[8:]:
                raise _damaged(path, at)
            (length,) = struct.unpack("<Q", head[:8])
            record, check = file.read(length), file.read(4)
            if len(record) < length or masked(value(record)) != check:
                raise _damaged(path, at)
            yield at + 12, record
            at += length + 16


def _features(record: bytes, path: str, begin: int) -> list[tuple[str, Feature]]:
    """Return the features of an example, by name."""
    found = []
    try:
        for _, start, end in _fields(record, 0, len(record)):
            for _, low, high in _fields(record, start, end):
                pair = {number: (a, b) for number, a, b in _fields(record, low, high)}
                (name_begin, name_end), (feature_begin, feature_end) = pair[1], pair[2]
                name = record[name_begin:name_end].decode()
                for kind, a, b in _fields(record, feature_begin, feature_end):
                    found.append((name, Feature(kind, [(c, d) for _, c, d in _fields(record, a, b)])))
    except (IndexError, KeyError, ValueError):
        raise CorruptDataError(
            "a record is no tf.train.Example", given=f"{path}, byte {begin}", next="pack records of examples only"
        )
    return sorted(found)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, begin, end) of the fields of a message; numbers of their own are given with their encoded bytes."""
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        begin = at
        if wire == 2:
            length, begin = _varint(data, at)
            at = begin + length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at > end:
            raise IndexError("cut off")
        yield tag >> 3, begin, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _values(record: bytes, feature: Feature) -> Any:
    """Return a list of a feature as an array: float32, int64, or texts of bytes."""
    import numpy

    pieces = [record[begin:end] for begin, end in feature.parts]
    if feature.kind == _FLOATS:
        return numpy.frombuffer(b"".join(pieces), "<f4")
    if feature.kind == _BYTES:
        return numpy.array(pieces or [b""], dtype=f"S{max(1, max(map(len, pieces), default=1))}")
    numbers, packed, at = [], b"".join(pieces), 0
    while at < len(packed):
        number, at = _varint(packed, at)
        numbers.append(number - (1 << 64) if number >> 63 else number)
    return numpy.array(numbers, "<i8")


def _npy(values: Any) -> bytes:
    import numpy

    file = io.BytesIO()
    numpy.save(file, values, allow_pickle=False)
    return file.getvalue()


def _damaged(path: str, at: int) -> CorruptDataError:
    return CorruptDataError(
        "a file of records is damaged or cut off",
        given=f"{path}, byte {at}",
        next="copy it again from where it was made",
    )


def open_origin(address: str, options: dict[str, Any]) -> SampleOrigin:
    """Return the origin of a TFRecord file."""
    return TFRecordsOrigin([address], os.path.splitext(os.path.basename(address))[0])


def masked(check: int) -> bytes:
    """Return a CRC-32C as records have it: masked, little endian."""
    return struct.pack("<I", ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF)
