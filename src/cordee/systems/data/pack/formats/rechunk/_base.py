"""Arrays that lie badly for reading by samples are written anew: the same arrays, each sample in one place.

A chunk that holds a part of every sample is read once per sample and epoch. What is not compressed is written contiguous, so
that a sample is one read of its own bytes; what is compressed, in chunks of whole samples of about 1 MB. Rows are copied in
large blocks, so each old chunk is read seldom, and all is read back and compared.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from isal.isal_zlib import crc32

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.pack._base import PackOptions, PackResult, Tell
from cordee.systems.data.pack.origins.array_files import HDF5_ENDINGS, ArrayFile, open_arrays
from cordee.systems.data.pack.origins.arrays import ArraysOrigin
from cordee.systems.data.pack.places import sync
from cordee.systems.data.pack.sidecar import Sidecar

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

CHUNK_BYTES = 1 << 20
SHARD_BYTES = 256 << 20
_BLOCK_BYTES = 256 << 20
SAMPLES = "samples"
_SAID = re.compile(r"error message = '([^']*)'")

# Writes all arrays of an open file to a path, tells of every block of rows, and returns what it left out, by kind.
Write = Callable[[ArrayFile, str, int | None, Callable[[int], None]], dict[str, list[str]]]


def rechunk(plan: PackPlan, to: str, options: PackOptions, tell: Tell, write: Write, is_file: bool) -> PackResult:
    """Write the arrays of the plan's origin to the file or folder `to`, which appears when it is whole and compared.

    Raises:
        UsageError: `to` or the chunk is not what it should be. DataError: it cannot be written.
    """
    assert isinstance(plan.origin, ArraysOrigin)
    began, source = time.monotonic(), plan.origin.file
    rows = _rows(options.chunk)
    _refuse_choice(plan, source)
    to = _target(to, is_file)
    about = {"target": "hdf5" if is_file else "zarr", "fingerprint": plan.fingerprint, "chunk": rows}
    sidecar = Sidecar(to, about)
    if os.path.lexists(to) and not options.restart:
        return sidecar.packed()
    partial = os.path.join(os.path.dirname(to), f".partial-{os.path.basename(to)}")
    total, done = sum(array.nbytes for array in source.arrays.values()), [0]

    def wrote(size: int) -> None:
        done[0] += size
        tell(len(plan) * done[0] // max(1, 2 * total), plan.total_bytes * done[0] // max(1, 2 * total))

    try:
        _clear(partial)
        sidecar.forget()
        left_out = write(source, partial, rows, wrote)
        _compare(source, partial, wrote)
        plan.origin.check()
        for path in _files(partial):
            sync(path)
        if options.restart:
            _clear(to)
        os.rename(partial, to)
    except (OSError, RuntimeError) as error:  # HDF5 tells what it cannot write at closing by the latter
        raise DataError(
            f"the arrays cannot be written: {_words(error)}",
            given=to,
            next="make room, or choose another place by --to",
        )
    finally:
        _clear(partial)
    seconds = time.monotonic() - began
    return sidecar.keep(PackResult(to, None, 1, source.samples, total, seconds, left_out=left_out))


def blocks(array: Any) -> Iterator[slice]:
    """Give the rows of an array in blocks of some hundred megabytes."""
    rows = int(array.shape[0])
    each = max(1, _BLOCK_BYTES * rows // max(1, int(array.nbytes)))
    return (slice(begin, min(begin + each, rows)) for begin in range(0, rows, each))


def rows_of_chunk(array: Any, asked: int | None) -> int:
    """Return how many samples go into a chunk: as many as were asked for, or as fit into a megabyte."""
    row_bytes = max(1, int(array.nbytes) // max(1, int(array.shape[0])))
    return min(int(array.shape[0]), asked or max(1, CHUNK_BYTES // row_bytes)) or 1


def _compare(source: ArrayFile, partial: str, wrote: Callable[[int], None]) -> None:
    import numpy

    made = open_arrays(partial)
    try:
        for path, array in source.arrays.items():
            again = made.arrays[path]
            for part in blocks(array) if len(array.shape) else [()]:
                rows = numpy.asarray(array[part])
                if _check(rows) != _check(numpy.asarray(again[part])):
                    raise CorruptDataError(
                        "what was written is not what was read",
                        given=f"{source.path}: {path}, rows {part}",
                        next="run it again; if it repeats, the disk or its driver is at fault",
                    )
                wrote(rows.nbytes)
    finally:
        made.close()


def _check(rows: Any) -> int:
    return hash(repr(rows.tolist())) if rows.dtype.hasobject else crc32(rows.tobytes())


def _words(error: Exception) -> str:
    """Return what the system said; HDF5 wraps it in a report of its own."""
    said = _SAID.search(str(error))
    return said[1] if said else getattr(error, "strerror", None) or str(error)


def _refuse_choice(plan: PackPlan, source: ArrayFile) -> None:
    """Refuse what was chosen of the rows, or their order: arrays are written as a whole."""
    rows = [sample.entries[0].offset % source.samples for sample in plan.samples()]
    if rows != list(range(source.samples)):
        raise UsageError(
            "arrays are written anew as a whole, in their order",
            given=source.path,
            allowed="no --shuffle, --include or --exclude",
            next="pack into WebDataset shards to choose among samples",
        )


def _rows(chunk: str) -> int | None:
    if chunk in ("", SAMPLES):
        return None
    if not chunk.isdigit() or not int(chunk):
        raise UsageError(
            "this is no number of samples", given=f"--chunk {chunk}", allowed=f"{SAMPLES} (about 1 MB), or a number"
        )
    return int(chunk)


def _target(to: str, is_file: bool) -> str:
    if "://" in to or (is_file and (os.path.isdir(to) or not to.endswith(HDF5_ENDINGS))):
        allowed = f"a path that ends with {', '.join(HDF5_ENDINGS)}" if is_file else "a folder"
        raise UsageError("arrays are not written to such a place", given=f"--to {to}", allowed=allowed)
    to = os.path.abspath(to)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    return to


def _clear(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _files(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)
