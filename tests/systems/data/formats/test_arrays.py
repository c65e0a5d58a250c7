"""Files of arrays, packed row by row."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
import zarr

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.unpack import unpack

SAMPLES = 60


@pytest.fixture
def arrays() -> dict[str, Any]:
    draw = numpy.random.default_rng(4)
    return {
        "train/images": draw.integers(0, 255, (SAMPLES, 16, 16), dtype="u1"),
        "train/depth": draw.random((SAMPLES, 8), dtype="f4"),
        "label": draw.integers(0, 5, SAMPLES),
        "mean": draw.random(3),
    }


@pytest.fixture
def bad(arrays: dict[str, Any], tmp_path: Path) -> Path:
    """An HDF5 file whose chunks hold a part of every sample."""
    path = tmp_path / "bad.h5"
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            whole = {"chunks": (SAMPLES, 4, 4), "compression": "gzip"} if name == "train/images" else {}
            file.create_dataset(name, data=values, **whole)
        file.attrs["made"] = "by a test"
        file["train/images"].attrs["unit"] = "counts"
        file.create_group("empty")
    return path


def written_zarr(path: Path, arrays: dict[str, Any]) -> None:
    group = zarr.open_group(str(path), mode="w")
    for name, values in arrays.items():
        group.create_array(name, data=values)


def rows_of(folder: Path) -> dict[str, Any]:
    return {path.name: numpy.load(io.BytesIO(path.read_bytes())) for path in folder.rglob("*.npy")}


@pytest.mark.parametrize("kind", ["hdf5", "zarr", "npz"])
def test_rows_are_packed_as_samples_with_their_class(
    kind: str, bad: Path, arrays: dict[str, Any], tmp_path: Path
) -> None:
    source = {"hdf5": bad, "zarr": tmp_path / "x.zarr", "npz": tmp_path / "x.npz"}[kind]
    if kind == "zarr":
        written_zarr(source, arrays)
    if kind == "npz":
        numpy.savez(source, **arrays)
    result = pack(plan_of(str(source)), str(tmp_path / "out"), PackOptions(shard_bytes=20_000, workers=2))
    index = open_index(tmp_path / "out")
    assert (result.samples, index.samples) == (SAMPLES, SAMPLES)
    assert index.columns["label"].tolist() == arrays["label"].tolist()
    assert result.left_out == {"arrays with another first dimension": ["mean"]}
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    rows = rows_of(tmp_path / "back")
    for number in range(SAMPLES):
        assert (rows[f"{number:02}.images.npy"] == arrays["train/images"][number]).all()
        assert (rows[f"{number:02}.depth.npy"] == arrays["train/depth"][number]).all()


def test_a_file_that_is_no_hdf5_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"no such thing")
    with pytest.raises(DataError, match="cannot be read"):
        plan_of(str(tmp_path / "x.h5"))


def test_hdf5_under_another_ending_is_known_by_its_first_bytes(bad: Path, tmp_path: Path) -> None:
    os.rename(bad, tmp_path / "bad.nc")
    assert pack(plan_of(str(tmp_path / "bad.nc")), str(tmp_path / "out"), PackOptions()).samples == SAMPLES
