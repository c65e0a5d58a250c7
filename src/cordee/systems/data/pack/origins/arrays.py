"""Rows of arrays as samples: HDF5, Zarr and NPZ files are packed row by row, each array a field."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry, Sample
from cordee.systems.data.node.shards.groups import in_order
from cordee.systems.data.pack._base import SampleOrigin
from cordee.systems.data.pack.origins.array_files import LABELS, ArrayFile, open_arrays
from cordee.systems.data.pack.origins.rows import fields_of

# Rows that are read together: neighbours often lie in the same chunk of the file.
_BLOCK_BYTES = 32 << 20


class ArraysOrigin(SampleOrigin):
    """Each row of each array is an entry `GROUP/ROW.ARRAY.npy`; an array of integers called `label` is the class.

    Attributes:
        file: the open file.
    """

    # The libraries' own threads and locks do not survive a fork.
    threads = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
        self._stamp = os.stat(path).st_mtime_ns
        self.file: ArrayFile = open_arrays(path)
        self._fields: list[tuple[str, Any, bytes]] = []
        self._local = threading.local()

    def listing(self) -> Listing:
        """Return the rows of all arrays that have one per sample."""
        import numpy

        listing = Listing(fingerprint=str(self._stamp))
        digits = len(str(self.file.samples - 1))
        arrays = self.file.per_sample()
        labels = next((path for path, array in arrays.items() if _is_label(path, array)), None)
        if len(arrays) == 1:
            labels = None
        fields = fields_of(f"{path.rpartition('/')[2]}.npy" for path in arrays)
        groups: dict[str, list[tuple[str, int, int]]] = {}
        for path, array in arrays.items():
            dtype = numpy.dtype(array.dtype)
            if path == labels or dtype.hasobject:
                if dtype.hasobject:
                    listing.left_out.setdefault("arrays of text or objects", []).append(path)
                continue
            group, _, name = path.rpartition("/")
            head = _npy_head(array.shape[1:], dtype)
            size = len(head) + _row_bytes(array)
            number = len(self._fields)
            self._fields.append((path, array, head))
            groups.setdefault(group, []).append((fields[f"{name}.npy"], size, number))
        others = [path for path in self.file.arrays if path not in arrays]
        if others:
            listing.left_out["arrays with another first dimension"] = others
        values = None if labels is None else self.file.arrays[labels][:].tolist()
        rows = []
        for group, members in groups.items():
            prefix = f"{group}/" if group else ""
            called = tuple(field for field, _, _ in members)
            for row in range(self.file.samples):
                key = f"{prefix}{row:0{digits}}"
                entries = tuple(
                    PackedEntry(f"{key}.{field}".encode(), size, offset=number * self.file.samples + row)
                    for field, size, number in members
                )
                rows.append(Sample(key.encode(), None if values is None else values[row], called, entries, False))
        listing.samples = in_order(rows)
        return listing

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        number, row = divmod(entry.offset, self.file.samples)
        _, array, head = self._fields[number]
        kept = getattr(self._local, "blocks", None)
        if kept is None:
            kept = self._local.blocks = {}
        begin, block = kept.get(number, (0, ()))
        if not begin <= row < begin + len(block):
            rows = max(1, _BLOCK_BYTES // max(1, _row_bytes(array)))
            begin = row // rows * rows
            block = array[begin : begin + rows]
            kept[number] = begin, block
        yield head + block[row - begin].tobytes()

    def check(self) -> None:
        if os.stat(self.path).st_mtime_ns != self._stamp:
            raise DataError(
                "the file changed while it was packed", given=self.path, next="pack it again when it is done"
            )

    def close(self) -> None:
        self.file.close()


def _is_label(path: str, array: Any) -> bool:
    return path.rpartition("/")[2].lower() in LABELS and len(array.shape) == 1 and array.dtype.kind in "iu"


def _row_bytes(array: Any) -> int:
    size = int(array.dtype.itemsize)
    for length in array.shape[1:]:
        size *= int(length)
    return size


def _npy_head(shape: tuple[int, ...], dtype: Any) -> bytes:
    from numpy.lib import format as npy

    head = io.BytesIO()
    about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(map(int, shape))}
    npy.write_array_header_1_0(head, about)
    return head.getvalue()


def open_origin(address: str, options: dict[str, Any]) -> SampleOrigin:
    """Return the origin of a file of arrays."""
    return ArraysOrigin(address)
