"""The index of a packed data set: one file beside its shards, read by mapping it into memory.

Layout, little endian: `CoDataIx`, u32 length and u32 CRC-32 of the header, the header as JSON, then the columns, each at a
multiple of 64 bytes. N samples in shard order, F fields:

    shard    u4[N]      which of the header's shards
    offset   u8[N, F]   of the field's first byte in the shard
    length   i8[N, F]   bytes; -1: the sample has no such field
    crc32    u4[N, F]   optional: as zlib's; not there where nobody has read the bytes
    label    i8[N]      optional: the class; NO_LABEL where a sample has none
    key_end  u8[N]      where the sample's key ends in `keys`
    keys     u1[...]    the keys as bytes, one after the other (UTF-8, or whatever the file system had)

Any reader of WebDataset reads the shards without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional, Protocol, Sequence, Union

from cordee.core.errors import CorruptDataError, DataError
from cordee.machine.foreign_files import parse_json, regular

if TYPE_CHECKING:
    import numpy

MAGIC = b"CoDataIx"
SCHEMA = "cordee.index/1"
INDEX_NAME = "dataset.index"
NO_LABEL = -(1 << 63)
_HEAD = struct.Struct("<8sII")
_ALIGN = 64
_MOST_HEADER_BYTES = 1 << 30
_PART_BYTES = 4 << 20
# Columns of this size together are compared by several threads.
_LARGE_BYTES = 64 << 20
DTYPES = {
    "shard": "<u4",
    "offset": "<u8",
    "length": "<i8",
    "crc32": "<u4",
    "label": "<i8",
    "key_end": "<u8",
    "keys": "|u1",
}

Path = Union[str, "os.PathLike[str]"]


class Readable(Protocol):
    """What is read from its beginning."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer at the end."""
        ...


@dataclass(frozen=True)
class Shard:
    """One tar file: its name below the index's `root`, its size, its samples; `crc32` of the whole file, None: not known."""

    name: str
    bytes: int
    samples: int
    crc32: Optional[int] = None


@dataclass(frozen=True)
class ShardIndex:
    """An open index: what its header says, and its columns as read-only NumPy arrays mapped from the file.

    `root` is where the shards lie: an absolute folder or an `s3://` address. `id` names the content: two packings of the
    same files have the same one. `classes` names the labels, in their order; empty where labels are only numbers.
    """

    path: str
    root: str
    name: str
    id: str
    samples: int
    bytes: int
    fields: tuple[str, ...]
    classes: tuple[str, ...]
    shards: tuple[Shard, ...]
    columns: Mapping[str, "numpy.ndarray[Any, Any]"]

    def key(self, sample: int) -> str:
        """Return a sample's key; bytes that are no UTF-8 become surrogate escapes, as in file names."""
        ends = self.columns["key_end"]
        start = int(ends[sample - 1]) if sample else 0
        return self.columns["keys"][start : int(ends[sample])].tobytes().decode("utf-8", "surrogateescape")

    def shard_path(self, shard: int) -> str:
        """Return the path or address of a shard."""
        return f"{self.root.rstrip('/')}/{self.shards[shard].name}"


def open_index(path: Path, root: Optional[str] = None, *, compared: bool = True) -> ShardIndex:
    """Map an index, and compare it with its own check sums: about a second for each GB, which is read once, in its order.

    Args:
        path: the file, or the folder that holds `dataset.index`.
        root: where the shards lie, when not where the index says.
        compared: False where another process of the same job has compared it: only the header is read.

    Raises:
        DataError: there is none, or it cannot be read.
        CorruptDataError: it is cut off, damaged, or of a newer schema.
    """
    import numpy

    file_path = os.fspath(path)
    if os.path.isdir(file_path):
        file_path = os.path.join(file_path, INDEX_NAME)
    try:
        with open(file_path, "rb", opener=regular) as file:
            header, begin = _read_header(file, file_path, os.fstat(file.fileno()).st_size)
            if compared:
                _compare_columns(file.fileno(), header["columns"], begin, file_path)
            mapped = numpy.memmap(file, dtype="u1", mode="r") if header["size"] else numpy.empty(begin, "u1")
    except OSError as error:
        raise DataError(
            f"the index cannot be read: {error.strerror}",
            given=file_path,
            allowed="a packed data set, or its dataset.index",
            next="`cordee data pack` makes both; `cordee data pack --index-only` the index of shards that are there",
        ) from None
    columns = {}
    for column in header["columns"]:
        start, size = begin + column["offset"], column["bytes"]
        columns[column["name"]] = mapped[start : start + size].view(column["dtype"]).reshape(column["shape"])
    folder = os.path.dirname(os.path.abspath(file_path))
    place = root or header["root"]
    return ShardIndex(
        path=file_path,
        root=place if "://" in place else os.path.normpath(os.path.join(folder, place)),
        name=header["name"],
        id=header["id"],
        samples=header["samples"],
        bytes=header["bytes"],
        fields=tuple(header["fields"]),
        classes=tuple(header["classes"]),
        shards=tuple(Shard(**shard) for shard in header["shards"]),
        columns=columns,
    )


def read_header(path: Path) -> dict[str, Any]:
    """Return what an index says of itself, without NumPy: name, id, samples, bytes, fields, classes, root, shards.

    Raises:
        CorruptDataError: it is cut off, damaged, or of a newer schema.
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=regular) as file:
        return header_of(file, os.fspath(path), os.fstat(file.fileno()).st_size)


def header_of(file: Readable, path: str, size: int) -> dict[str, Any]:
    """Return what an index says of itself, as `read_header`, from whatever gives its first bytes; `size` is that of all."""
    return _read_header(file, path, size)[0]


def write_index(
    path: Path,
    *,
    name: str,
    fields: Sequence[str],
    classes: Sequence[str],
    shards: Sequence[Shard],
    columns: Mapping[str, "numpy.ndarray[Any, Any]"],
    root: str = ".",
) -> str:
    """Write an index to `path`, durably and under its final name only when it is whole; return its `id`.

    Args:
        columns: as the module says; `label` and `crc32` may be left out.
        root: where the shards lie, relative to the index's folder, absolute, or an `s3://` address.
    """
    import numpy

    arrays = {kind: numpy.ascontiguousarray(columns[kind], DTYPES[kind]) for kind in DTYPES if kind in columns}
    described, offset = [], 0
    for kind, array in arrays.items():
        offset = -(-offset // _ALIGN) * _ALIGN
        about = {
            "name": kind,
            "dtype": DTYPES[kind],
            "shape": list(array.shape),
            "offset": offset,
            "bytes": array.nbytes,
        }
        described.append({**about, "crc32": _crc32(array)})
        offset += array.nbytes
    lengths = arrays["length"]
    content = {
        "fields": list(fields),
        "classes": list(classes),
        "shards": [asdict(shard) for shard in shards],
        "columns": described,
    }
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    header = {
        "schema": SCHEMA,
        "name": name,
        "id": identity,
        "samples": len(lengths),
        "bytes": int(lengths[lengths > 0].sum()),
        "root": root,
        "size": offset,
        **content,
    }
    _write_whole(os.fspath(path), json.dumps(header).encode(), arrays, described)
    return identity


def _compare_columns(descriptor: int, columns: Sequence[Mapping[str, Any]], begin: int, path: str) -> None:
    """Compare every column with its check sum: a wrong offset or label would be another sample's, without a word.

    Raises:
        CorruptDataError: a column is damaged.
    """

    def damaged(column: Mapping[str, Any]) -> bool:
        crc, at = 0, begin + column["offset"]
        end = at + column["bytes"]
        while at < end and (part := os.pread(descriptor, min(end - at, _PART_BYTES), at)):
            crc, at = zlib.crc32(part, crc), at + len(part)
        return at < end or crc != int(column["crc32"])

    if sum(column["bytes"] for column in columns) < _LARGE_BYTES:
        wrong = list(map(damaged, columns))
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(columns)) as pool:
            wrong = list(pool.map(damaged, columns))
    names = [column["name"] for column, is_wrong in zip(columns, wrong) if is_wrong]
    if names:
        raise _corrupt(f"its column {', '.join(names)} is damaged", path)


def _write_whole(path: str, header: bytes, arrays: Mapping[str, Any], described: list[dict[str, Any]]) -> None:
    header += b" " * (-(_HEAD.size + len(header)) % _ALIGN)
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        file.write(_HEAD.pack(MAGIC, len(header), zlib.crc32(header)) + header)
        begin = file.tell()
        for column in described:
            file.write(bytes(begin + column["offset"] - file.tell()))
            file.write(arrays[column["name"]].reshape(-1).view("u1"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)


def _read_header(file: Readable, path: str, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and where the columns begin; the file is as long as the header says."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or head[:8] != MAGIC:
        raise _corrupt("it is no index of Cordée" if head[:8] != MAGIC else "it is cut off", path)
    _, length, crc32 = _HEAD.unpack(head)
    text = file.read(length) if length <= _MOST_HEADER_BYTES else b""
    if len(text) != length or zlib.crc32(text) != crc32:
        raise _corrupt("its header is cut off or damaged", path)
    try:
        header: dict[str, Any] = parse_json(text)
    except ValueError as error:
        raise _corrupt(f"its header is no JSON: {error}", path) from None
    if header["schema"] != SCHEMA:
        raise CorruptDataError(
            "the index has another schema than this Cordée reads",
            given=f"{path}: {header['schema']}",
            allowed=SCHEMA,
            next="use the Cordée that packed it, or a newer one",
        )
    begin = _HEAD.size + length
    missing = begin + header["size"] - size
    if missing > 0:
        raise _corrupt(f"it is cut off: {missing} bytes are missing", path)
    return header, begin


def _crc32(array: Any) -> int:
    return zlib.crc32(memoryview(array.reshape(-1).view("u1")))


def _corrupt(what: str, path: str) -> CorruptDataError:
    return CorruptDataError(
        f"the index cannot be used: {what}",
        given=path,
        next="copy it again from where the data set was packed, or make it anew: `cordee data pack --index-only`",
    )
