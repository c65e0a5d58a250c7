"""Arrays of the sealed store: Zarr v3 with sharding, read and written piece by piece without importing zarr.

A shard is a file of chunks, each compressed by Blosc, and an index of where they lie (offset and length, u64 LE; both all
ones: nothing there) with its CRC-32C at the end: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/.
Writing replaces a shard at once and copies the chunks that it does not touch. A shard that is missing or damaged reads as
missing samples, and is named.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google_crc32c import value as crc32c

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import read_json, regular_below
from cordee.runs.folder import write_atomically

_NOTHING = (1 << 64) - 1
_MOST_DECODED_BYTES = 48 << 20
_CRC = struct.Struct("<I")
_BLOSC_SIZES = struct.Struct("<III")  # of a chunk's header: bytes when whole, of a block, as stored
# Higher levels make a few per cent less of measured values, at twice the cost.
_BLOSC: dict[str, Any] = {"typesize": 4, "cname": "zstd", "clevel": 1, "shuffle": "bitshuffle", "blocksize": 0}
_KINDS = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}

Span = tuple[int, int]


class ShardedArray:
    """One array in its folder.

    Args:
        path: the folder that holds its `zarr.json`.

    Attributes:
        shape: as the metadata has it.
        dims: the dimensions' names.
        damaged: shards that could not be read, relative to `path`, with the reason.
        byte_shuffled: indices of the first dimension whose chunks are shuffled by bytes, not bits; a chunk says so itself.

    Raises:
        RunFolderError: the metadata is missing, damaged, or of a kind that no Cordée writes.
    """

    def __init__(self, path: Path, below: Path | None = None) -> None:
        self.path = path
        self.below = path if below is None else below
        self.damaged: dict[str, str] = {}
        self.byte_shuffled: frozenset[int] = frozenset()
        self._decoded: OrderedDict[tuple[tuple[int, ...], int], np.ndarray] = OrderedDict()
        self._decoded_bytes = 0
        try:
            self._document = document = read_json(path / "zarr.json", self.below)
            (sharding,) = document["codecs"]
            inside = {codec["name"]: codec.get("configuration", {}) for codec in sharding["configuration"]["codecs"]}
            known = sharding["name"] == "sharding_indexed" and set(inside) <= {"transpose", "bytes", "blosc"}
            if not known or sharding["configuration"].get("index_location", "end") != "end":
                raise ValueError(f"its codecs are {', '.join(inside)}")
            self.dtype = np.dtype(_KINDS[document["data_type"]])
            self.shape: tuple[int, ...] = tuple(document["shape"])
            self.dims: list[str] = document["dimension_names"]
            self._shard = tuple(document["chunk_grid"]["configuration"]["chunk_shape"])
            self._chunk = tuple(sharding["configuration"]["chunk_shape"])
            self._order = tuple(inside.get("transpose", {}).get("order", range(len(self.shape))))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"an array of the sealed telemetry cannot be read: {error}",
                given=str(path),
                allowed="the sharded arrays that this Cordée writes",
                next="copy the folder again, or read it with the version that wrote it",
            ) from error
        self._per_shard = tuple(s // c for s, c in zip(self._shard, self._chunk, strict=True))
        self._index_bytes = 16 * math.prod(self._per_shard) + _CRC.size

    def read(self, *spans: Span) -> np.ndarray:
        """Return the values between [low, high) of each dimension; what was never written is NaN."""
        found = np.full([high - low for low, high in spans], np.nan, dtype=self.dtype)
        for shard in _cells(spans, self._shard):
            if self._read_decoded(shard, spans, found):
                continue
            with suppress(FileNotFoundError), self._open(shard) as file:
                self._read_shard(file.fileno(), shard, spans, found)
        return found

    def write(self, values: np.ndarray, *starts: int) -> list[Path]:
        """Store values from these indices on and return the shards that were written; `shape` must have room for them."""
        spans = [(start, start + length) for start, length in zip(starts, values.shape, strict=True)]
        self._decoded.clear()
        self._decoded_bytes = 0
        return [self._write_shard(shard, values, spans) for shard in _cells(spans, self._shard)]

    def before(self, dimension: int, index: int) -> list[Path]:
        """Return the files of the shards that end before an index of a dimension, or at it."""
        pattern = "/".join(["c", *("*" for _ in self._shard)])
        files = [(path.relative_to(self.path / "c").parts, path) for path in self.path.glob(pattern)]
        return [
            path
            for at, path in files
            if at[dimension].isdigit() and (int(at[dimension]) + 1) * self._shard[dimension] <= index
        ]

    def grow(self, *shape: int) -> None:
        """Make room: no dimension becomes smaller."""
        wider = tuple(max(old, new) for old, new in zip(self.shape, shape, strict=True))
        if wider != self.shape:
            self.shape = wider
            self._document["shape"] = list(wider)
            write_atomically(self.path / "zarr.json", json.dumps(self._document))

    def _open(self, shard: Sequence[int]) -> BinaryIO:
        return open(self._file(shard), "rb", buffering=0, opener=regular_below(self.below))

    def _file(self, shard: Sequence[int]) -> Path:
        return self.path / "c" / "/".join(map(str, shard))

    def _read_shard(self, descriptor: int, shard: tuple[int, ...], spans: Sequence[Span], found: np.ndarray) -> None:
        index = self._read_index(descriptor, shard)
        if index is None:
            return
        for at, chunk in self._chunks(shard, spans):
            offset, length = index[at]
            if offset == _NOTHING:
                continue
            values = self._decode(os.pread(descriptor, length, offset), shard)
            if values is not None:
                into, of = _overlap(spans, chunk, self._chunk)
                found[into] = values[of]
                self._keep((shard, at), values)

    def _read_decoded(self, shard: tuple[int, ...], spans: Sequence[Span], found: np.ndarray) -> bool:
        """Read a shard's chunks from those that are kept, if they all are: views ask for the same ones again and again."""
        kept = [(chunk, self._decoded.get((shard, at))) for at, chunk in self._chunks(shard, spans)]
        if any(values is None for _, values in kept):
            return False
        for chunk, values in kept:
            into, of = _overlap(spans, chunk, self._chunk)
            found[into] = values[of] if values is not None else np.nan
        return True

    def _keep(self, key: tuple[tuple[int, ...], int], values: np.ndarray) -> None:
        if key not in self._decoded:
            self._decoded[key] = values
            self._decoded_bytes += values.nbytes
            while self._decoded_bytes > _MOST_DECODED_BYTES:
                self._decoded_bytes -= self._decoded.popitem(last=False)[1].nbytes

    def _read_index(self, descriptor: int, shard: tuple[int, ...]) -> list[tuple[int, int]] | None:
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, self._index_bytes, max(0, size - self._index_bytes))
        if len(data) < self._index_bytes or _CRC.unpack(data[-4:])[0] != crc32c(data[:-4]):
            self._note(shard, "its index is missing or damaged")
            return None
        numbers = np.frombuffer(data[:-4], "<u8").reshape(-1, 2)
        return [(offset, length) for offset, length in numbers.tolist()]

    def _decode(self, data: bytes, shard: tuple[int, ...]) -> np.ndarray | None:
        from numcodecs.blosc import decompress

        try:
            size, _, stored = _BLOSC_SIZES.unpack_from(data, 4)
            if size != math.prod(self._chunk) * self.dtype.itemsize or stored != len(data):
                raise ValueError("its header is wrong")
            with _one_thread():
                flat = np.frombuffer(decompress(data), self.dtype)
            values = flat.reshape([self._chunk[axis] for axis in self._order])
        except (RuntimeError, ValueError, struct.error) as error:
            self._note(shard, f"a chunk is damaged: {error}")
            return None
        return values.transpose(np.argsort(self._order))

    def _note(self, shard: tuple[int, ...], reason: str) -> None:
        self.damaged[str(self._file(shard).relative_to(self.path))] = reason

    def _chunks(self, shard: tuple[int, ...], spans: Sequence[Span]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the place in the index and the number in the array of each chunk of a shard that the spans meet."""
        first = [at * per for at, per in zip(shard, self._per_shard, strict=True)]
        clipped = [
            (max(low, at * length), min(high, (at + 1) * length))
            for (low, high), at, length in zip(spans, shard, self._shard, strict=True)
        ]
        for chunk in _cells(clipped, self._chunk):
            inside = [number - begin for number, begin in zip(chunk, first, strict=True)]
            yield int(np.ravel_multi_index(inside, self._per_shard)), chunk

    def _write_shard(self, shard: tuple[int, ...], values: np.ndarray, spans: Sequence[Span]) -> Path:
        path = self._file(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        old = _OldShard(self, shard)
        try:
            pieces: dict[int, bytes | memoryview] = dict(old.pieces)
            for at, chunk in self._chunks(shard, spans):
                into, of = _overlap(spans, chunk, self._chunk)
                whole = values[into]
                if whole.shape != self._chunk:
                    known = self._decode(bytes(pieces[at]), shard) if at in pieces else None
                    base = np.full(self._chunk, np.nan, dtype=self.dtype) if known is None else known.copy()
                    base[of] = whole
                    whole = base
                ordered = np.ascontiguousarray(whole.transpose(self._order), dtype=self.dtype)
                pieces[at] = _compress(ordered, shuffle=1 if chunk[0] in self.byte_shuffled else 2)
            self._replace(path, pieces)
        finally:
            old.close()
        return path

    def _replace(self, path: Path, pieces: dict[int, bytes | memoryview]) -> None:
        index = np.full((math.prod(self._per_shard), 2), _NOTHING, dtype="<u8")
        partial = path.with_name(path.name + ".partial")
        offset = 0
        with open(partial, "wb") as file:
            for at, piece in sorted(pieces.items()):
                file.write(piece)
                index[at] = offset, len(piece)
                offset += len(piece)
            data = index.tobytes()
            file.write(data + _CRC.pack(crc32c(data)))
        os.replace(partial, path)


class _OldShard:
    """The chunks that a shard holds, as they lie in its file: `pieces` by place in the index."""

    def __init__(self, array: ShardedArray, shard: tuple[int, ...]) -> None:
        self.pieces: dict[int, memoryview] = {}
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        try:
            with array._open(shard) as file:
                index = array._read_index(file.fileno(), shard)
                if index is not None:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self._view = memoryview(self._map)
        except FileNotFoundError:
            return
        for at, (offset, length) in enumerate(index or ()):
            if offset != _NOTHING:
                self.pieces[at] = self._view[offset : offset + length]

    def close(self) -> None:
        """Let go of the file."""
        for piece in self.pieces.values():
            piece.release()
        self._view.release()
        if self._map is not None:
            self._map.close()


def create_array(
    path: Path,
    *,
    shape: Sequence[int],
    chunks: Sequence[int],
    shards: Sequence[int],
    dims: Sequence[str],
    dtype: str = "float32",
    transposed: bool = False,
) -> ShardedArray:
    """Make an array; `transposed`: in a chunk a device's samples follow one another, which compresses better.

    Raises:
        OSError: the disk refuses.
    """
    outer = list(range(len(dims) - 2))
    order = [{"name": "transpose", "configuration": {"order": [*outer, len(dims) - 1, len(dims) - 2]}}]
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    blosc = {"name": "blosc", "configuration": {**_BLOSC, "typesize": np.dtype(_KINDS[dtype]).itemsize}}
    sharding = {
        "chunk_shape": list(chunks),
        "codecs": [*(order if transposed else []), little, blosc],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": "end",
    }
    codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    _write_metadata(path, shape, shards, dtype, "NaN", codecs, dims, {})
    return ShardedArray(path)


def write_vector(path: Path, values: Sequence[Any] | np.ndarray, attributes: dict[str, Any]) -> None:
    """Store a coordinate: one chunk of float64, int64 or text, in the folder named after its dimension.

    Raises:
        OSError: the disk refuses.
    """
    if isinstance(values, np.ndarray):
        dtype, fill = str(values.dtype), "NaN" if values.dtype.kind == "f" else 0
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        configuration = {**_BLOSC, "typesize": 8, "shuffle": "shuffle"}
        codecs = [little, {"name": "blosc", "configuration": configuration}]
        data = _compress(values.astype(_KINDS[dtype]), shuffle=1)
    else:
        dtype, fill, codecs = "string", "", [{"name": "vlen-utf8"}]
        words = [str(value).encode() for value in values]
        data = _CRC.pack(len(words)) + b"".join(_CRC.pack(len(word)) + word for word in words)
    (path / "c").mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path / "c" / "0", data)
    _write_metadata(path, [len(values)], [max(1, len(values))], dtype, fill, codecs, [path.name], attributes)


def write_group(path: Path, attributes: dict[str, Any]) -> None:
    """Make a group, or replace its attributes.

    Raises:
        OSError: the disk refuses.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    write_atomically(path / "zarr.json", json.dumps(document))


def _write_metadata(
    path: Path,
    shape: Sequence[int],
    chunks: Sequence[int],
    dtype: str,
    fill: Any,
    codecs: list[dict[str, Any]],
    dims: Sequence[str],
    attributes: dict[str, Any],
) -> None:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": attributes,
        "dimension_names": list(dims),
        "storage_transformers": [],
    }
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path / "zarr.json", json.dumps(document))


def _compress(values: np.ndarray, shuffle: int = 2) -> bytes:
    from numcodecs import blosc

    with _one_thread():
        data: bytes = blosc.compress(values, b"zstd", _BLOSC["clevel"], shuffle)
    return data


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let Blosc work alone: of many small chunks its threads would only wait for each other."""
    from numcodecs import blosc

    threads, blosc.use_threads = blosc.use_threads, False
    try:
        yield
    finally:
        blosc.use_threads = threads


def _cells(spans: Sequence[Span], lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of the cells of these lengths that the spans meet."""
    ranges = [range(low // length, -(-high // length)) for (low, high), length in zip(spans, lengths, strict=True)]
    if all(high > low for low, high in spans):
        yield from itertools.product(*ranges)


def _overlap(
    spans: Sequence[Span], cell: Sequence[int], lengths: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where a cell and the spans meet: as slices of what the spans hold, and of the cell."""
    of_spans, of_cell = [], []
    for (low, high), at, length in zip(spans, cell, lengths, strict=True):
        begin, end = max(low, at * length), min(high, (at + 1) * length)
        of_spans.append(slice(begin - low, end - low))
        of_cell.append(slice(begin - at * length, end - at * length))
    return tuple(of_spans), tuple(of_cell)
