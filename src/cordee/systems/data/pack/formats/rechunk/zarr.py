"""Arrays to a Zarr v3 group whose samples lie together, in shards of hundreds of megabytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cordee.core.errors import DataError
from cordee.systems.data.pack.formats.rechunk._base import SHARD_BYTES, blocks, rows_of_chunk
from cordee.systems.data.pack.origins.array_files import ArrayFile


def write_zarr(source: ArrayFile, path: str, rows: int | None, wrote: Callable[[int], None]) -> dict[str, list[str]]:
    """Write all arrays to a new folder; what was compressed is compressed by zstd. Return what is left out, by kind.

    Raises:
        DataError: an array has a type that Zarr has not.
    """
    import numpy
    import zarr

    per_sample = source.per_sample()
    left_out: dict[str, list[str]] = {}
    group = zarr.open_group(path, mode="w-", attributes=_attributes(source.handle, left_out))
    for name, array in source.arrays.items():
        if array.dtype.hasobject or array.dtype.kind not in "biufc":
            raise DataError(
                "an array has a type that is not written to Zarr",
                given=f"{source.path}: {name} ({array.dtype})",
                allowed="numbers",
                next="pack into WebDataset shards, or --as hdf5",
            )
        asked = rows if name in per_sample else int(array.shape[0]) if array.shape else None
        made = _array(group, name, array, asked, _attributes(array, left_out))
        for part in blocks(array) if array.shape else [()]:
            values = numpy.asarray(array[part])
            made[part] = values
            wrote(values.nbytes)
    return left_out


def _array(group: Any, name: str, array: Any, rows: int | None, attributes: dict[str, Any]) -> Any:
    shape = tuple(map(int, array.shape))
    compressed = bool(getattr(array, "compression", None) or getattr(array, "compressors", ()))
    options: dict[str, Any] = {} if compressed else {"compressors": None}
    if shape and array.size:
        each = rows_of_chunk(array, rows)
        chunk_bytes = each * int(array.nbytes) // shape[0]
        chunks_per_shard = max(1, min(SHARD_BYTES // max(1, chunk_bytes), -(-shape[0] // each)))
        options["chunks"] = (each, *shape[1:])
        options["shards"] = (each * chunks_per_shard, *shape[1:])
    return group.create_array(name, shape=shape, dtype=array.dtype, attributes=attributes, **options)


def _attributes(item: Any, left_out: dict[str, list[str]]) -> dict[str, Any]:
    """Return the attributes that JSON can hold, as plain values."""
    found = {}
    for name, value in dict(getattr(item, "attrs", {})).items():
        plain = value.tolist() if hasattr(value, "tolist") else value
        try:
            json.dumps(plain)
        except (TypeError, ValueError):
            left_out.setdefault("attributes that are no JSON", []).append(f"{item.name}@{name}")
        else:
            found[name] = plain
    return found
