"""A Zarr v3 group whose chunks are single samples, in shards of hundreds of megabytes.

`samples` is an array of bytes (sample, field): the chunk of one sample's field is its bytes behind two counts, and a shard
is its chunks and an index of them at its end, so a sample is one ranged read for any reader of Zarr
(https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/, numcodecs' `vlen-bytes`). A field that a sample
has not is a chunk that is not there: empty bytes. `key` and `label` have one value per sample.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import Sample
from cordee.systems.data.node.shards.index import NO_LABEL
from cordee.systems.data.pack.formats._base import PackFormat, Placed, Tick, Which
from cordee.systems.data.pack.formats.content import pieces, write_at
from cordee.systems.data.pack.formats.target import FormatTarget

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

_NOTHING = (1 << 64) - 1
_LARGEST_BYTES = (1 << 32) - 1
_COUNTS = struct.Struct("<II")  # of a chunk: one value, of so many bytes
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_VARIABLE = {"name": "vlen-bytes", "configuration": {}}


class Zarr(PackFormat):
    """Shards of equally many samples: Zarr's grid has no others. One that is left out is empty bytes in every field."""

    name = "zarr"
    files = r"((samples|key|label)/)?zarr\.json|(key|label)/c/0|samples/c/\d+/0"

    def shard(self, data_set: str, number: int) -> str:
        return f"samples/c/{number}/0"

    def cut(self, plan: PackPlan, shard_bytes: int) -> list[tuple[int, int]]:
        each = max(1, shard_bytes * len(plan) // max(1, plan.total_bytes))
        return [(begin, min(begin + each, len(plan))) for begin in range(0, len(plan), each)]

    def write(self, path: str, plan: PackPlan, samples: list[Sample], which: Which, tick: Tick) -> Placed:
        from google_crc32c import value

        placed = Placed(len(samples), plan.fields)
        rows = which.cuts[0][1] - which.cuts[0][0]
        index = [(_NOTHING, _NOTHING)] * (rows * len(plan.fields))
        column = {field: at for at, field in enumerate(plan.fields)}
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            at = 0
            for row, (place, sample) in enumerate(zip(which.rows, samples, strict=True)):
                for field, entry in zip(sample.fields, sample.entries, strict=True):
                    if entry.length > _LARGEST_BYTES:
                        raise _too_large(sample, entry.length)
                    os.pwrite(descriptor, _COUNTS.pack(1, entry.length), at)
                    check = write_at(descriptor, at + _COUNTS.size, pieces(plan, entry))
                    placed.put(row, sample, entry, at + _COUNTS.size, check)
                    size = _COUNTS.size + entry.length
                    index[place * len(plan.fields) + column[field]] = (at, size)
                    at += size
                tick(1, sum(entry.length for entry in sample.entries))
            packed = b"".join(struct.pack("<QQ", *each) for each in index)
            os.pwrite(descriptor, packed + struct.pack("<I", value(packed)), at)
        finally:
            os.close(descriptor)
        return placed

    def finish(self, plan: PackPlan, cuts: Sequence[tuple[int, int]]) -> dict[str, bytes]:
        samples, fields = len(plan), len(plan.fields)
        attributes = {"fields": list(plan.fields), "classes": list(plan.classes)}
        files = {
            "zarr.json": _text({"zarr_format": 3, "node_type": "group", "attributes": attributes}),
            "samples/zarr.json": _array(
                (samples, fields),
                (cuts[0][1] - cuts[0][0], fields),
                "variable_length_bytes",
                "",
                _sharded((1, 1), _VARIABLE),
                ("sample", "field"),
            ),
            **_vector("key", [sample.key for sample in plan.samples()]),
        }
        labels = [NO_LABEL if sample.label is None else sample.label for sample in plan.samples()]
        if any(label != NO_LABEL for label in labels):
            files["label/zarr.json"] = _array((samples,), (samples,), "int64", NO_LABEL, _LITTLE, ("sample",))
            files["label/c/0"] = struct.pack(f"<{samples}q", *labels)
        return files


def _vector(name: str, values: list[bytes]) -> dict[str, bytes]:
    count = len(values)
    content = struct.pack("<I", count) + b"".join(struct.pack("<I", len(value)) + value for value in values)
    about = _array((count,), (count,), "variable_length_bytes", "", _VARIABLE, ("sample",))
    return {f"{name}/zarr.json": about, f"{name}/c/0": content}


def _sharded(chunk: tuple[int, ...], codec: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": list(chunk),
            "codecs": [codec],
            "index_codecs": [_LITTLE, {"name": "crc32c"}],
            "index_location": "end",
        },
    }


def _array(
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    data_type: str,
    fill: object,
    codec: dict[str, Any],
    dims: tuple[str, ...],
) -> bytes:
    return _text(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [codec],
            "dimension_names": list(dims),
            "attributes": {},
            "storage_transformers": [],
        }
    )


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()


def _too_large(sample: Sample, length: int) -> DataError:
    return DataError(
        "a field is larger than a chunk of bytes can be",
        given=f"{sample.key.decode('utf-8', 'backslashreplace')}: {length} bytes",
        allowed=f"{_LARGEST_BYTES} bytes",
        next="pack into WebDataset shards, which hold any size",
    )


TARGET = FormatTarget(Zarr())
