"""What can be packed, and what it can be packed to: one line each; modules are imported when they are asked for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.shards.containers import GZIP_TFRECORD, TFRECORD
from cordee.systems.data.node.shards.containers import kind_of as container_kind
from cordee.systems.data.pack._base import SampleOrigin, Target
from cordee.systems.data.pack.origins.array_files import kind_of

# By how an address or path ends, or begins where it holds `://`: the module's `open_origin(address, options) -> Origin`.
ORIGINS = {
    ".tar": "cordee.systems.data.pack.origins.archive",
    ".tar.gz": "cordee.systems.data.pack.origins.archive",
    ".tgz": "cordee.systems.data.pack.origins.archive",
    ".tar.bz2": "cordee.systems.data.pack.origins.archive",
    ".tar.xz": "cordee.systems.data.pack.origins.archive",
    ".tar.zst": "cordee.systems.data.pack.origins.archive",
    ".zip": "cordee.systems.data.pack.origins.archive",
    ".csv": "cordee.systems.data.pack.origins.csv_table",
    ".tsv": "cordee.systems.data.pack.origins.csv_table",
    ".parquet": "cordee.systems.data.pack.origins.parquet",
    ".arrow": "cordee.systems.data.pack.origins.parquet",
    ".feather": "cordee.systems.data.pack.origins.parquet",
    ".tfrecord": "cordee.systems.data.pack.origins.tfrecords",
    ".tfrecords": "cordee.systems.data.pack.origins.tfrecords",
    ".h5": "cordee.systems.data.pack.origins.arrays",
    ".hdf5": "cordee.systems.data.pack.origins.arrays",
    ".hdf": "cordee.systems.data.pack.origins.arrays",
    ".npz": "cordee.systems.data.pack.origins.arrays",
    ".zarr": "cordee.systems.data.pack.origins.arrays",
    ".jsonl": "cordee.systems.data.pack.origins.text_file",
    ".ndjson": "cordee.systems.data.pack.origins.text_file",
    ".txt": "cordee.systems.data.pack.origins.text_file",
    "s3://": "cordee.systems.data.pack.origins.objects",
}
FOLDER = "cordee.systems.data.pack.origins.folder"

# By the name after `--as`: the module's `TARGET`, which is a Target.
TARGETS = {
    "webdataset": "cordee.systems.data.pack.shards.tar",
    "tokens": "cordee.systems.data.pack.tokens.target",
    "hdf5": "cordee.systems.data.pack.formats.hdf5",
    "zarr": "cordee.systems.data.pack.formats.zarr",
    "squashfs": "cordee.systems.data.pack.formats.squashfs",
}


def open_origin(address: str, options: dict[str, Any]) -> SampleOrigin:
    """Return the origin of a path or address, by what lies there and how it ends.

    Raises:
        UsageError: nothing reads such a thing. DataError: nothing is there.
    """
    ending = max((end for end in ORIGINS if _matches(address, end)), key=len, default=None)
    if "://" not in address and os.path.isdir(address):
        module = ORIGINS[".zarr"] if kind_of(address) == "zarr" else FOLDER
    elif ending is not None:
        module = ORIGINS[ending]
    elif "://" not in address and kind_of(address) is not None:  # HDF5 under another ending: .nc, .mat
        module = ORIGINS[".h5"]
    elif "://" not in address and _is_records(address):  # train-00000-of-01024
        module = ORIGINS[".tfrecord"]
    else:
        allowed = f"a folder, or a file or address with {', '.join(ORIGINS)}"
        if "://" in address or os.path.exists(address):
            raise UsageError("this cannot be packed", given=address, allowed=allowed)
        raise DataError("there is nothing to pack", given=address, allowed=allowed, next="check the path")
    origin: SampleOrigin = import_module(module).open_origin(address, options)
    return origin


def _is_records(path: str) -> bool:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.isfile(path) and container_kind(os.fsencode(name), os.fsencode(folder)) in (TFRECORD, GZIP_TFRECORD)


def open_target(name: str) -> Target:
    """Return the target of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in TARGETS:
        raise UsageError("there is no such format", given=name, allowed=list(TARGETS))
    target: Target = import_module(TARGETS[name]).TARGET
    return target


def _matches(address: str, ending: str) -> bool:
    if ending.endswith("://"):
        return address.startswith(ending)
    return "://" not in address and address.lower().endswith(ending)
