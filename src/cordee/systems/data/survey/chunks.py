"""How the arrays of HDF5 files and Zarr stores lie: whether reading one record reads about as much, in few pieces."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from cordee.core.units import format_size
from cordee.machine.foreign_files import parse_json
from cordee.systems.data.survey.magic import open_quietly
from cordee.systems.data.survey.model import Chunks

MOST_ARRAYS = 50
SMALL_ARRAY_BYTES = 16 << 20
SMALL_CHUNK_BYTES = 64 << 10
MOST_PIECES = 16
MOST_EXCESS = 64
LARGE_CHUNK_BYTES = 16 << 20
_MOST_METADATA_BYTES = 1 << 20


def chunks_of(
    path: str, array: str, shape: Sequence[int], chunk_shape: Sequence[int] | None, item_bytes: int
) -> Chunks:
    """Return how an array lies, and whether that fits reading records, the entries of its first axis, in any order.

    Args:
        chunk_shape: what is read at once; None: the array lies in one piece.
        item_bytes: of one element.
    """
    record_bytes = math.prod(shape[1:]) * item_bytes
    total = math.prod(shape) * item_bytes
    chunk_bytes = None if chunk_shape is None else math.prod(chunk_shape) * item_bytes
    reason = "right as it is"
    fits = True
    if chunk_shape is not None and chunk_bytes and total > SMALL_ARRAY_BYTES and len(chunk_shape) == len(shape):
        pieces = math.prod(-(-size // chunk) for size, chunk in zip(shape[1:], chunk_shape[1:], strict=True))
        excess = chunk_bytes * pieces / max(1, record_bytes)
        fits = False
        if chunk_bytes < SMALL_CHUNK_BYTES:
            reason = f"chunks of {format_size(chunk_bytes)} make {math.ceil(total / chunk_bytes):,} small reads"
        elif pieces > MOST_PIECES:
            reason = f"one record of {format_size(record_bytes)} lies in {pieces:,} chunks"
        elif excess > MOST_EXCESS and chunk_bytes > LARGE_CHUNK_BYTES:
            reason = f"one record of {format_size(record_bytes)} costs reading {format_size(chunk_bytes * pieces)}"
        else:
            fits = True
    return Chunks(
        path=path,
        array=array,
        shape=tuple(shape),
        chunk_shape=None if chunk_shape is None else tuple(chunk_shape),
        chunk_bytes=chunk_bytes,
        record_bytes=record_bytes,
        fits=fits,
        reason=reason,
    )


def hdf5_chunks(path: str) -> tuple[list[Chunks], str | None]:
    """Return how the arrays of an HDF5 file lie, or why that is not known."""
    try:
        import h5py
    except ImportError:
        return [], "how the arrays of HDF5 files are chunked is not known: h5py is not installed"
    found: list[Chunks] = []

    def visit(name: str, item: Any) -> Any:
        if isinstance(item, h5py.Dataset) and item.shape:
            found.append(chunks_of(path, f"/{name}", item.shape, item.chunks, item.dtype.itemsize))
        return True if len(found) >= MOST_ARRAYS else None

    try:
        with h5py.File(path, "r", locking=False) as file:
            file.visititems(visit)
    except (OSError, RuntimeError, KeyError) as error:
        return found, f"{path} cannot be read as HDF5: {str(error).splitlines()[0][:200]}"
    return found, None


def zarr_chunks(folders: Sequence[str]) -> list[Chunks]:
    """Return how the arrays of Zarr stores (formats 2 and 3) lie; `folders` are those with a `.zarray` or `zarr.json`.

    Source: the specifications of Zarr v2 and v3, and of v3's codec `sharding_indexed`.
    """
    found = []
    for folder in folders[:MOST_ARRAYS]:
        for name, described in (("zarr.json", _version_3), (".zarray", _version_2)):
            metadata = _metadata(os.path.join(folder, name))
            if metadata is not None:
                found += [chunks_of(folder, os.path.basename(folder), *lies) for lies in described(metadata)]
                break
    return found


def _version_3(metadata: dict[str, Any]) -> Iterator[tuple[list[int], list[int], int]]:
    if metadata.get("node_type") != "array":
        return
    try:
        chunk_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        for codec in metadata.get("codecs", []):
            if codec.get("name") == "sharding_indexed":
                chunk_shape = codec["configuration"]["chunk_shape"]
        yield metadata["shape"], chunk_shape, _item_bytes(metadata["data_type"])
    except (KeyError, TypeError, ValueError):
        return


def _version_2(metadata: dict[str, Any]) -> Iterator[tuple[list[int], list[int], int]]:
    try:
        yield metadata["shape"], metadata["chunks"], _item_bytes(metadata["dtype"])
    except (KeyError, TypeError, ValueError):
        return


def _item_bytes(kind: Any) -> int:
    """Return the bytes of one element: `float32` of v3 are 4, `<f4` of v2 too.

    Raises:
        ValueError: it has no fixed size.
    """
    if kind == "bool":
        return 1
    digits = "".join(letter for letter in str(kind) if letter.isdigit())
    if not digits or not isinstance(kind, str):
        raise ValueError(f"no fixed size: {kind}")
    return max(1, int(digits) // 8) if kind[0] not in "<>|" else int(digits)


def _metadata(path: str) -> dict[str, Any] | None:
    try:
        with open(open_quietly(path), "rb") as file:
            found = parse_json(file.read(_MOST_METADATA_BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
