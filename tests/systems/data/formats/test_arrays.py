"""Files of arrays: packed row by row, and written anew so that a sample is one read."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
import zarr

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack._base import PackOptions, PackResult
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


def relaid(source: Path, to: Path, kind: str, **options: Any) -> PackResult:
    return pack(plan_of(str(source)), str(to), PackOptions(**options), target=kind)


def test_a_badly_chunked_file_is_written_with_a_sample_in_one_place(
    bad: Path, arrays: dict[str, Any], tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    pack(plan_of(str(bad)), str(tmp_path / "new.h5"), PackOptions(), target="hdf5", tell=lambda *at: told.append(at))
    with h5py.File(tmp_path / "new.h5") as file:
        for name, values in arrays.items():
            assert (file[name][()] == values).all()
            assert file[name].dtype == values.dtype
        assert file["train/images"].chunks == (SAMPLES, 16, 16)  # less than a megabyte in all
        assert file["train/images"].compression == "gzip"
        assert file["train/depth"].chunks is None
        assert (file.attrs["made"], file["train/images"].attrs["unit"]) == ("by a test", "counts")
        assert "empty" in file
    assert told[-1][0] == SAMPLES
    relaid(bad, tmp_path / "few.h5", "hdf5", chunk="4")
    assert h5py.File(tmp_path / "few.h5")["train/images"].chunks == (4, 16, 16)


def test_hdf5_becomes_zarr_and_zarr_becomes_hdf5(bad: Path, arrays: dict[str, Any], tmp_path: Path) -> None:
    relaid(bad, tmp_path / "x.zarr", "zarr", chunk="2")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="r")
    assert (group["train/images"].chunks, group["train/images"].shards) == ((2, 16, 16), (SAMPLES, 16, 16))
    assert group.attrs["made"] == "by a test"
    relaid(tmp_path / "x.zarr", tmp_path / "back.h5", "hdf5")
    with h5py.File(tmp_path / "back.h5") as file:
        for name, values in arrays.items():
            assert (group[name][...] == values).all()
            assert (file[name][()] == values).all()


def test_the_same_arrays_make_the_same_file_and_nothing_is_left_beside(bad: Path, tmp_path: Path) -> None:
    for kind, name in (("hdf5", "one.h5"), ("hdf5", "two.h5"), ("zarr", "one.zarr"), ("zarr", "two.zarr")):
        relaid(bad, tmp_path / "out" / name, kind)
    out = tmp_path / "out"
    assert (out / "one.h5").read_bytes() == (out / "two.h5").read_bytes()
    trees = [
        {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (out / "one.zarr", out / "two.zarr")
    ]
    assert trees[0] == trees[1]
    names = ["one.h5", "one.zarr", "two.h5", "two.zarr"]
    assert sorted(os.listdir(out)) == sorted([*names, *(f"{name}.packed.json" for name in names)])


@pytest.mark.parametrize(("kind", "name"), [("hdf5", "new.h5"), ("zarr", "new.zarr")])
def test_arrays_that_are_there_already_are_not_written_again(bad: Path, tmp_path: Path, kind: str, name: str) -> None:
    first, again = (relaid(bad, tmp_path / name, kind) for _ in range(2))
    assert (first.already, again.already) == (False, True)
    assert (again.samples, again.bytes) == (first.samples, first.bytes)
    file = (
        next(path for path in sorted((tmp_path / name).rglob("*"), reverse=True) if path.is_file())
        if kind == "zarr"
        else tmp_path / name
    )
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match="not whole any more"):
        relaid(bad, tmp_path / name, kind)
    assert not relaid(bad, tmp_path / name, kind, restart=True).already


def test_what_cannot_be_written_so_is_refused(bad: Path, tmp_path: Path) -> None:
    relaid(bad, tmp_path / "new.h5", "hdf5")
    with pytest.raises(UsageError, match=r"is there already.*another --chunk"):
        relaid(bad, tmp_path / "new.h5", "hdf5", chunk="4")
    with pytest.raises(UsageError, match="no number of samples"):
        relaid(bad, tmp_path / "other.h5", "hdf5", chunk="many")
    with pytest.raises(UsageError, match="such a place"):
        relaid(bad, tmp_path / "folder", "hdf5")
    with pytest.raises(UsageError, match="not in chunks"):
        relaid(bad, tmp_path / "out", "webdataset", chunk="4")
    with pytest.raises(UsageError, match="as a whole"):
        pack(plan_of(str(bad), shuffle=1), str(tmp_path / "other.h5"), PackOptions(), target="hdf5")


def test_what_was_written_wrongly_does_not_appear(bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(source: Any, path: str, rows: Any, wrote: Any) -> dict[str, list[str]]:
        with h5py.File(path, "w") as file:
            for name, array in source.arrays.items():
                file[name] = numpy.zeros_like(array[()])
        return {}

    monkeypatch.setattr("cordee.systems.data.pack.formats.rechunk.hdf5.write_hdf5", wrong)
    with pytest.raises(CorruptDataError, match="not what was read"):
        relaid(bad, tmp_path / "new.h5", "hdf5")
    assert os.listdir(tmp_path) == ["bad.h5"]


def rows_of(folder: Path) -> dict[str, Any]:
    return {path.name: numpy.load(io.BytesIO(path.read_bytes())) for path in folder.rglob("*.npy")}


@pytest.mark.parametrize("kind", ["hdf5", "zarr", "npz"])
def test_rows_are_packed_as_samples_with_their_class(
    kind: str, bad: Path, arrays: dict[str, Any], tmp_path: Path
) -> None:
    source = {"hdf5": bad, "zarr": tmp_path / "x.zarr", "npz": tmp_path / "x.npz"}[kind]
    if kind == "zarr":
        relaid(bad, source, "zarr")
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
    assert relaid(tmp_path / "bad.nc", tmp_path / "out", "webdataset").samples == SAMPLES


def test_what_means_another_object_of_the_old_file_is_left_out_by_name(bad: Path, tmp_path: Path) -> None:
    with h5py.File(bad, "a") as file:
        file["train/depth"].attrs["see"] = file["label"].ref
        file["train/depth"].dims[0].label = "sample"
        file["mean"].make_scale("means")
        file["train/depth"].dims[1].attach_scale(file["mean"])
        file["again"] = h5py.SoftLink("/label")
    result = relaid(bad, tmp_path / "new.h5", "hdf5")
    assert result.left_out["links"] == ["/again"]
    assert "/train/depth@see" in result.left_out["attributes that refer to objects"]
    with h5py.File(tmp_path / "new.h5") as file:
        assert "see" not in file["train/depth"].attrs
        assert (file["label"][:] == h5py.File(bad)["label"][:]).all()
