"""TFRecord files as a source: a record is a sample, a feature is a field; read without TensorFlow.

Bytes are packed as they are, from where they lie; lists of integers and of numbers become arrays (`.npy`). `__key__` names a
sample where all have one of their own, else its number does; one integer called `label` is its class.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from cordee.data.pack._base import Entry, Listing, Origin
from cordee.data.pack.formats.tfrecord import KEY, LABEL, masked
from cordee.errors import CorruptDataError, DataError

ENDINGS = (".tfrecord", ".tfrecords")
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3


class Feature(NamedTuple):
    """A feature of an example: its kind, and where its values lie in the record, as (begin, end) of encoded parts."""

    kind: int
    parts: list[tuple[int, int]]


class TFRecordsOrigin(Origin):
    """The records of one file, or of all files of a folder in the order of their names."""

    def __init__(self, path: str) -> None:
        self.name = os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
        inside = sorted(os.listdir(path)) if os.path.isdir(path) else []
        self._paths = [os.path.join(path, name) for name in inside if name.endswith(ENDINGS)] or [path]
        self._stamps = [os.stat(each).st_mtime_ns for each in self._paths]

    def listing(self) -> Listing:
        """Return the features of every record."""
        found: list[tuple[bytes, int | None, list[Entry]]] = []
        for number, path in enumerate(self._paths):
            for begin, record in _records(path):
                found.append(self._sample(number, path, begin, record))
        keys = [key for key, _, _ in found]
        numbered = b"" in keys or len(set(keys)) < len(keys)
        digits = len(str(max(0, len(found) - 1)))
        listing = Listing(fingerprint=str(self._stamps))
        labels: dict[bytes, int] = {}
        for number, (key, label, entries) in enumerate(found):
            prefix = b"%0*d" % (digits, number) if numbered else key
            for entry in entries:
                named = entry._replace(name=prefix + b"." + entry.name)
                listing.entries.append(named)
                if label is not None:
                    labels[named.name] = label
        listing.labels = labels
        return listing

    def _sample(self, number: int, path: str, begin: int, record: bytes) -> tuple[bytes, int | None, list[Entry]]:
        key, label, entries = b"", None, []
        for name, feature in _features(record, path, begin):
            if feature.kind == _BYTES and len(feature.parts) == 1:
                start, end = feature.parts[0]
                if name == KEY:
                    key = record[start:end]
                else:
                    entries.append(Entry(name.encode(), end - start, os.fsencode(path), begin + start))
                continue
            values = _values(record, feature)
            if name == LABEL and feature.kind == _INTEGERS and len(values) == 1:
                label = int(values[0])
            else:
                length = len(_npy(values))
                entries.append(Entry(f"{name}.npy".encode(), length, offset=begin * len(self._paths) + number))
        return key, label, entries

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        begin, number = divmod(entry.offset, len(self._paths))
        path = self._paths[number]
        with open(path, "rb") as file:
            file.seek(begin - 12)
            (length,) = struct.unpack("<Q", file.read(8))
            file.seek(begin)
            record = file.read(length)
        for name, feature in _features(record, path, begin):
            if entry.name.endswith(f".{name}.npy".encode()):
                yield _npy(_values(record, feature))
                return

    def check(self) -> None:
        if self._stamps != [os.stat(path).st_mtime_ns for path in self._paths]:
            raise DataError("a file of records changed while it was packed", given=self.name, next="pack again")


def _records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield where each record's bytes begin, and them.

    Raises:
        CorruptDataError: a check sum is wrong, or the file is cut off.
    """
    from google_crc32c import value

    with open(path, "rb") as file:
        at = 0
        while head := file.read(12):
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


def open_origin(address: str, options: dict[str, Any]) -> Origin:
    """Return the origin of a TFRecord file, or of a folder of them."""
    return TFRecordsOrigin(address)
