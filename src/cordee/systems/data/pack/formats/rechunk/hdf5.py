"""Arrays to one HDF5 file whose samples lie together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cordee.systems.data.pack.formats.rechunk._base import blocks, rows_of_chunk
from cordee.systems.data.pack.origins.array_files import ArrayFile

# Of dimension scales; their references stand in a compound.
_SCALES = ("DIMENSION_LIST", "REFERENCE_LIST")


def write_hdf5(source: ArrayFile, path: str, rows: int | None, wrote: Callable[[int], None]) -> dict[str, list[str]]:
    """Write all arrays, groups and attributes to a new file; filters of HDF5 are kept. Return what is left out, by kind."""
    import numpy

    from cordee.systems.data.pack.origins.array_files import import_h5py

    h5py = import_h5py()
    per_sample, left_out = source.per_sample(), _LeftOut(h5py, {})
    with h5py.File(path, "w", libver="earliest") as file:
        if source.kind == "hdf5":
            left_out.attributes(source.handle, file)
            source.handle.visititems(lambda name, item: left_out.group(file, name, item))
            left_out.links(source.handle)
        for name, array in source.arrays.items():
            if name in per_sample:
                made = _array(file, name, array, rows, source.kind, wrote)
            else:
                values = numpy.asarray(array[()])
                made = file.create_dataset(name, data=values, dtype=array.dtype)
                wrote(values.nbytes)
            left_out.attributes(array, made)
    return left_out.found


class _LeftOut:
    """Copies what stands around arrays, and notes what cannot be copied: it means another object of the old file."""

    def __init__(self, h5py: Any, found: dict[str, list[str]]) -> None:
        self._h5py, self.found = h5py, found

    def group(self, file: Any, name: str, item: Any) -> None:
        if isinstance(item, self._h5py.Group):
            self.attributes(item, file.require_group(name))

    def attributes(self, source: Any, made: Any) -> None:
        for name in getattr(source, "attrs", {}):
            try:
                made.attrs[name] = source.attrs[name]
                refers = self._h5py.check_ref_dtype(made.attrs.get_id(name).dtype) is not None
            except (TypeError, ValueError, OSError):
                refers = True
            if refers or (made.attrs.get_id(name).dtype.hasobject and name in _SCALES):
                if name in made.attrs:
                    del made.attrs[name]
                self.found.setdefault("attributes that refer to objects", []).append(f"{made.name}@{name}")

    def links(self, group: Any) -> None:
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, self._h5py.HardLink):
                self.found.setdefault("links", []).append(f"{group.name.rstrip('/')}/{name}")
            elif isinstance(group[name], self._h5py.Group):
                self.links(group[name])


def _array(file: Any, name: str, array: Any, rows: int | None, kind: str, wrote: Callable[[int], None]) -> Any:
    filters = {}
    if kind == "hdf5":
        filters = {
            "compression": array.compression,
            "compression_opts": array.compression_opts,
            "shuffle": array.shuffle or None,
            "fletcher32": array.fletcher32 or None,
            "fillvalue": array.fillvalue,
        }
    compressed = any(filters.get(one) for one in ("compression", "shuffle", "fletcher32"))
    chunks = (rows_of_chunk(array, rows), *array.shape[1:]) if compressed or rows else None
    made = file.create_dataset(name, shape=array.shape, dtype=array.dtype, chunks=chunks, **filters)
    for part in blocks(array):
        values = array[part]
        made[part] = values
        wrote(values.nbytes)
    return made
