"""Endings with capitals, as ImageNet's `.JPEG` and cameras' `.JPG`: packed, verified, read, measured, unpacked."""

from __future__ import annotations

import tarfile

import pytest

from cordee.systems.data.pack.shards.index_only import index_shards
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from support.data.shards import packed, samples_read, tree

NAMES = ["a/1.JPEG", "a/2.JPG", "b/3.jpeg", "b/4.TXT", "b/4.JPEG"]
EXPECTED = {
    "a/1": {"jpeg": b"a/1.JPEG", "label": 0},
    "a/2": {"jpg": b"a/2.JPG", "label": 0},
    "b/3": {"jpeg": b"b/3.jpeg", "label": 1},
    "b/4": {"txt": b"b/4.TXT", "jpeg": b"b/4.JPEG", "label": 1},
}


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "images"


@pytest.mark.parametrize("target", ["webdataset", "zarr"])
def test_what_is_packed_is_read_and_unpacked_with_its_own_names(folder, tmp_path, target):
    packed(folder, tmp_path / "out", target=target, labels="folders")
    assert verify(str(tmp_path / "out")).damaged == []
    assert samples_read(tmp_path / "out") == EXPECTED
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(folder)


def test_shards_of_others_are_indexed_and_read(folder, tmp_path):
    (tmp_path / "shards").mkdir()
    with tarfile.open(tmp_path / "shards/x.tar", "w") as archive:
        for name in NAMES:
            archive.add(folder / name, name)
    index_shards(str(tmp_path / "shards"))
    found = samples_read(tmp_path / "shards")
    assert found == {
        key: {name: value for name, value in fields.items() if name != "label"} for key, fields in EXPECTED.items()
    }
