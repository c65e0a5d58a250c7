"""Files of arrays whose first dimension is the sample: HDF5, Zarr and NPZ, opened alike."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.errors import DataError
from cordee.machine.foreign_files import regular

if TYPE_CHECKING:
    pass

HDF5_ENDINGS = (".h5", ".hdf5", ".hdf")
_HDF5 = b"\x89HDF\r\n\x1a\n"
# Names under which people keep the classes of their samples.
LABELS = ("label", "labels", "y", "target", "targets", "class", "cls")


@dataclass
class ArrayFile:
    """An open file of arrays.

    Attributes:
        kind: hdf5, zarr or npz.
        handle: what its library calls the open file; None for NPZ.
        arrays: every array by its path in it; they have shape, dtype, and give rows by slices.
        samples: the first dimension that most of the arrays share.
    """

    path: str
    kind: str
    handle: Any
    arrays: Mapping[str, Any]
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        counted = Counter(int(array.shape[0]) for array in self.arrays.values() if len(array.shape))
        self.samples = max(counted, key=lambda length: (counted[length], length), default=0)

    def per_sample(self) -> dict[str, Any]:
        """Return the arrays that have one row per sample."""
        return {
            path: array
            for path, array in self.arrays.items()
            if len(array.shape) and int(array.shape[0]) == self.samples
        }

    def close(self) -> None:
        """Give the file back."""
        if self.kind == "hdf5":
            self.handle.close()


def kind_of(path: str) -> str | None:
    """Return hdf5, zarr or npz by what lies there; None: no file of arrays."""
    if os.path.isdir(path):
        known = (os.path.exists(os.path.join(path, name)) for name in ("zarr.json", ".zgroup", ".zarray"))
        return "zarr" if any(known) else None
    if path.lower().endswith(HDF5_ENDINGS) or _begins(path, _HDF5):
        return "hdf5"
    return "npz" if path.lower().endswith(".npz") else None


def _begins(path: str, signature: bytes) -> bool:
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(len(signature)) == signature
    except OSError:
        return False


def open_arrays(path: str) -> ArrayFile:
    """Open a file of arrays for reading.

    Raises:
        DataError: it cannot be read, or holds no arrays.
    """
    kind = kind_of(path)
    openers = {"hdf5": _open_hdf5, "zarr": _open_zarr, "npz": _open_npz}
    if kind is None:
        raise DataError("this is no file of arrays", given=path, allowed="HDF5, Zarr, NPZ")
    try:
        handle, arrays = openers[kind](path)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the file of arrays cannot be read: {error}", given=path, next="check that it is whole")
    found = ArrayFile(path, kind, handle, arrays)
    if not found.samples:
        raise DataError("there are no arrays with rows in it", given=path, allowed="arrays whose rows are samples")
    return found


def _open_hdf5(path: str) -> tuple[Any, dict[str, Any]]:
    h5py = import_h5py()
    file = h5py.File(path, "r", rdcc_nbytes=64 << 20, rdcc_nslots=100_003, locking="best-effort")
    arrays: dict[str, Any] = {}
    file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return file, arrays


def _open_zarr(path: str) -> tuple[Any, dict[str, Any]]:
    import zarr

    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Array):
        return root, {"data": root}
    return root, {name: item for name, item in root.members(max_depth=None) if isinstance(item, zarr.Array)}


def _open_npz(path: str) -> tuple[Any, dict[str, Any]]:
    import numpy

    with numpy.load(path, allow_pickle=False) as archive:
        return None, {name: archive[name] for name in archive.files}


def import_h5py() -> Any:
    """Return h5py.

    Raises:
        DataError: it is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise DataError("HDF5 needs h5py, which is not installed", next="install the extra: cordee[hdf5]")
    return h5py
