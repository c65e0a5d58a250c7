"""HDF5 files in which each sample is one contiguous read.

    key                          the samples' keys, as fixed-length bytes [N]
    label                        int64 [N], where there are labels
    fields/FIELD/bytes           uint8: the field of every sample, one after the other, contiguous in the file
    fields/FIELD/offset, length  int64 [N]: where sample i begins in `bytes`, and how long it is (-1: it has no such field)

A dataset of variable-length elements would put every sample on HDF5's heap, behind two more reads; a chunked one would cut
it. The file is laid out by h5py and the bytes are written to where its datasets lie.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cordee.systems.data.node.shards.entries import Sample
from cordee.systems.data.node.shards.index import NO_LABEL
from cordee.systems.data.pack.formats._base import PackFormat, Placed, Tick, Which
from cordee.systems.data.pack.formats.content import pieces, write_at
from cordee.systems.data.pack.formats.target import FormatTarget
from cordee.systems.data.pack.origins.array_files import import_h5py

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan


class HDF5(PackFormat):
    """Files of some hundred megabytes; each can be read by itself."""

    name = "hdf5"
    files = r".*-\d{6}\.h5"

    def shard(self, data_set: str, number: int) -> str:
        return f"{data_set}-{number:06}.h5"

    def write(self, path: str, plan: PackPlan, samples: list[Sample], which: Which, tick: Tick) -> Placed:
        placed = Placed(len(samples), plan.fields)
        begins, relative = _lay_out(path, plan, samples)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for row, sample in enumerate(samples):
                for field, entry in zip(sample.fields, sample.entries, strict=True):
                    at = begins[field] + relative[field][row]
                    placed.put(row, sample, entry, at, write_at(descriptor, at, pieces(plan, entry)))
                tick(1, sum(entry.length for entry in sample.entries))
        finally:
            os.close(descriptor)
        return placed


def _lay_out(path: str, plan: PackPlan, samples: list[Sample]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Make the file without the samples' bytes; return where each field's begin, and where each sample's stand in them."""
    import numpy

    h5py = import_h5py()
    begins, relative = {}, {}
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["fields"], file.attrs["classes"] = list(plan.fields), list(plan.classes)
        file["key"] = _fixed([sample.key for sample in samples])
        labels = [NO_LABEL if sample.label is None else sample.label for sample in samples]
        if any(label != NO_LABEL for label in labels):
            file["label"] = numpy.array(labels, "<i8")
        for field in plan.fields:
            entries = [
                sample.entries[sample.fields.index(field)] if field in sample.fields else None for sample in samples
            ]
            lengths = numpy.array([-1 if entry is None else entry.length for entry in entries], "<i8")
            ends = numpy.cumsum(numpy.maximum(lengths, 0))
            offsets = ends - numpy.maximum(lengths, 0)
            group = file.create_group(f"fields/{field}")
            group["offset"], group["length"] = offsets, lengths
            begins[field] = _room(h5py, group, int(ends[-1]))
            relative[field] = offsets.tolist()
    return begins, relative


def _room(h5py: Any, group: Any, size: int) -> int:
    """Make the contiguous dataset `bytes` without writing to it; return where it begins in the file."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((size,))
    made = h5py.h5d.create(group.id, b"bytes", h5py.h5t.STD_U8LE, space, properties)
    return made.get_offset() or 0 if size else 0


def _fixed(values: list[bytes]) -> Any:
    import numpy

    return numpy.array(values, dtype=f"S{max(1, max(map(len, values)))}")


TARGET = FormatTarget(HDF5())
