"""HDF5 and Zarr hold what the folder held, for their own libraries and for our index alike."""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

import pytest

from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.shards.index import ShardIndex, open_index
from cordee.systems.data.pack._base import PackOptions, PackResult
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.places import FolderPlace
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify

FORMATS = ("hdf5", "zarr")
SMALL = 12_000


def packed(folder: Path, to: Path, kind: str, workers: int = 1, **options: object) -> PackResult:
    return pack(plan_of(str(folder)), str(to), PackOptions(shard_bytes=SMALL, workers=workers, **options), target=kind)


def contents(index: ShardIndex) -> dict[tuple[str, str], bytes]:
    """Every field by key, read where the index says."""
    found = {}
    columns = index.columns
    for sample in range(index.samples):
        shard = Path(index.shard_path(int(columns["shard"][sample]))).read_bytes()
        for number, field in enumerate(index.fields):
            offset, length = int(columns["offset"][sample, number]), int(columns["length"][sample, number])
            if length >= 0:
                value = shard[offset : offset + length]
                assert len(value) == length
                assert zlib.crc32(value) == columns["crc32"][sample, number]
                found[index.key(sample), field] = value
    return found


def expected(folder: Path) -> dict[tuple[str, str], bytes]:
    plan = plan_of(str(folder))
    return {
        (os.fsdecode(sample.key), field): (folder / os.fsdecode(entry.name)).read_bytes()
        for sample in plan.samples()
        for field, entry in zip(sample.fields, sample.entries, strict=True)
    }


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_index_leads_to_every_byte(kind: str, folder: Path, tmp_path: Path) -> None:
    result = packed(folder, tmp_path / "out", kind)
    index = open_index(tmp_path / "out")
    assert result.shards == len(index.shards) > 2
    assert contents(index) == expected(folder)
    for shard in index.shards:
        assert (tmp_path / "out" / shard.name).stat().st_size == shard.bytes


@pytest.mark.parametrize("kind", FORMATS)
def test_any_number_of_workers_and_any_interruption_give_the_same_files(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(folder, tmp_path / "one", kind, name="x")
    packed(folder, tmp_path / "three", kind, workers=3, name="x")
    made = []
    take = FolderPlace.take

    def interrupted(self: FolderPlace, partial: str, name: str) -> None:
        made.append(name)
        if len(made) == 4:
            raise KeyboardInterrupt
        take(self, partial, name)

    with monkeypatch.context() as patch:
        patch.setattr(FolderPlace, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            packed(folder, tmp_path / "again", kind, name="x")
    assert not (tmp_path / "again" / "dataset.index").exists()
    assert packed(folder, tmp_path / "again", kind, name="x").resumed_shards > 0
    assert tree(tmp_path / "one") == tree(tmp_path / "three") == tree(tmp_path / "again")


@pytest.mark.parametrize("kind", FORMATS)
def test_what_cannot_be_read_is_refused_or_left_out_by_name(kind: str, folder: Path, tmp_path: Path) -> None:
    plan = plan_of(str(folder))
    (folder / "cat" / "003.jpg").unlink()
    (folder / "dog" / "005.jpg").write_bytes(b"another size")
    with pytest.raises(DataError, match="cannot be read"):
        pack(plan, str(tmp_path / "out"), PackOptions(shard_bytes=SMALL), target=kind)
    result = pack(plan, str(tmp_path / "out"), PackOptions(shard_bytes=SMALL, skip_unreadable=True), target=kind)
    (reasons,) = result.left_out.values()
    assert {reason.partition(":")[0] for reason in reasons} == {"cat/003.jpg", "dog/005.jpg"}
    want = {name: value for name, value in _expected_of(plan, folder).items() if name[0] not in ("cat/003", "dog/005")}
    assert contents(open_index(tmp_path / "out")) == want


def _expected_of(plan: object, folder: Path) -> dict[tuple[str, str], bytes]:
    found = {}
    for sample in plan.samples():  # type: ignore[attr-defined]
        for field, entry in zip(sample.fields, sample.entries, strict=True):
            path = folder / os.fsdecode(entry.name)
            if path.exists():
                found[os.fsdecode(sample.key), field] = path.read_bytes()
    return found


def test_h5py_reads_each_sample_by_itself(folder: Path, tmp_path: Path) -> None:
    import h5py

    packed(folder, tmp_path / "out", "hdf5")
    found = {}
    for path in sorted((tmp_path / "out").glob("*.h5")):
        with h5py.File(path) as file:
            for field, group in file["fields"].items():
                assert group["bytes"].chunks is None
                assert [h5py.h5g.get_objinfo(one.id).mtime for one in group.values()] == [0, 0, 0]
                for key, offset, length in zip(file["key"], group["offset"], group["length"], strict=True):
                    if length >= 0:
                        found[os.fsdecode(key), field] = group["bytes"][offset : offset + length].tobytes()
    assert found == expected(folder)


def test_zarr_reads_each_sample_by_itself(folder: Path, tmp_path: Path) -> None:
    import zarr

    packed(folder, tmp_path / "out", "zarr")
    group = zarr.open_group(str(tmp_path / "out"), mode="r")
    fields, samples = group.attrs["fields"], group["samples"]
    assert samples.chunks == (1, 1)
    keys = [os.fsdecode(bytes(key)) for key in group["key"][:]]
    found = {}
    for row, values in enumerate(samples[:]):
        for field, value in zip(fields, values, strict=True):
            found[keys[row], field] = bytes(value)
    want = expected(folder)
    assert {name: found[name] for name in want} == want
    assert {value for name, value in found.items() if name not in want} == {b""}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number, kind in enumerate(("cat", "dog", "emu")):
        (tmp_path / "classes" / kind).mkdir(parents=True)
        for picture in range(4):
            (tmp_path / "classes" / kind / f"{picture}.jpg").write_bytes(b"%d" % number)
    return tmp_path / "classes"


def test_labels_stand_where_each_library_looks_for_them(pictures: Path, tmp_path: Path) -> None:
    import h5py
    import zarr

    for kind in FORMATS:
        packed(pictures, tmp_path / kind, kind, name="x")
    want = [0] * 4 + [1] * 4 + [2] * 4
    assert open_index(tmp_path / "zarr").columns["label"].tolist() == want
    assert h5py.File(tmp_path / "hdf5" / "x-000000.h5")["label"][:].tolist() == want
    group = zarr.open_group(str(tmp_path / "zarr"), mode="r")
    assert group["label"][:].tolist() == want
    assert group.attrs["classes"] == ["cat", "dog", "emu"]


def test_hdf5_without_its_extra_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match="h5py, which is not installed") as caught:
        packed(folder, tmp_path / "out", "hdf5")
    assert "cordee[hdf5]" in str(caught.value.next)


@pytest.mark.parametrize("kind", FORMATS)
def test_verify_names_what_is_damaged_and_unpack_gives_back_the_rest(
    kind: str, folder: Path, files: dict[bytes, bytes], tmp_path: Path
) -> None:
    (folder / "none").mkdir()
    packed(folder, tmp_path / "out", kind)
    assert verify(str(tmp_path / "out")).damaged == []
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert {os.fsencode(name): content for name, content in tree(tmp_path / "back").items()} == files
    assert (tmp_path / "back" / "none").is_dir()

    index = open_index(tmp_path / "out")
    sample = next(number for number in range(index.samples) if index.key(number) == "dog/004")
    number = int(index.columns["shard"][sample])
    shard = Path(index.shard_path(number))
    content = bytearray(shard.read_bytes())
    content[int(index.columns["offset"][sample, index.fields.index("jpg")])] ^= 1
    shard.write_bytes(content)
    assert [(damage.key, damage.field) for damage in verify(str(tmp_path / "out")).damaged] == [("dog/004", "jpg")]
    assert unpack(str(tmp_path / "out"), str(tmp_path / "again")).damaged == ["dog/004.jpg"]
    shard.write_bytes(content[: len(content) // 2])
    assert verify(str(tmp_path / "out"), quick=True).damaged != []


@pytest.mark.parametrize("kind", FORMATS)
def test_cordee_dataset_reads_every_format_alike(kind: str, folder: Path, tmp_path: Path) -> None:
    import numpy

    from cordee.systems.data.node.read.sources import open_source

    packed(folder, tmp_path / "out", kind)
    source = open_source(str(tmp_path / "out"), keys=True)
    found = {}
    for sample in source.read(numpy.arange(source.size)):
        key = sample.pop("__key__", None) or sample.pop("key")
        found.update({(key, field): bytes(value) for field, value in sample.items() if field != "label"})
    source.close()
    assert found == expected(folder)

    index = open_index(tmp_path / "out")
    shard = tmp_path / "out" / index.shards[0].name
    shard.write_bytes(bytes(shard.stat().st_size))
    other = open_source(str(tmp_path / "out"))
    with pytest.raises(CorruptDataError, match="not the one of this index"):
        other.read(numpy.arange(3))
    other.close()
