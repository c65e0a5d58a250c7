"""Damage is found wherever it is, and told by key, shard and offset."""

from __future__ import annotations

import os
import shutil

import pytest

from cordee.core.errors import CorruptDataError, UsageError
from cordee.systems.data.node.shards.index import INDEX_NAME, open_index
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from support.data.shards import packed


@pytest.fixture
def data_set(image_folder, tmp_path):
    packed(image_folder, tmp_path / "set", options={"shard_bytes": 70_000})
    return tmp_path / "set"


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x41]))


def where(data_set, sample):
    index = open_index(data_set)
    shard = int(index.columns["shard"][sample])
    return index.key(sample), index.shards[shard].name, int(index.columns["offset"][sample, 0])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_whole_data_set_is_as_packed(data_set, workers):
    found = verify(str(data_set), workers=workers)
    assert (found.damaged, found.checked, found.samples) == ([], True, 40)
    assert not verify(str(data_set), quick=True).checked


def test_one_wrong_byte_names_its_sample_and_only_that(data_set):
    key, shard, offset = where(data_set, 7)
    flip(data_set / shard, offset)
    (damage,) = verify(str(data_set), workers=2).damaged
    assert (damage.key, damage.shard, damage.offset, damage.field) == (key, shard, offset, "jpg")
    assert damage.reason == "its bytes are damaged"


def test_a_damaged_header_names_the_sample_behind_it(data_set):
    key, shard, offset = where(data_set, 7)
    flip(data_set / shard, offset - 512 + 3)
    (damage,) = verify(str(data_set)).damaged
    assert (damage.key, damage.shard) == (key, shard)
    assert "the header before it is damaged" in damage.reason


def test_a_shard_that_is_cut_off_names_the_samples_that_are_gone(data_set):
    key, shard, offset = where(data_set, 3)
    os.truncate(data_set / shard, offset + 1)
    found = verify(str(data_set))
    assert "cut off" in found.damaged[-1].reason or "cut off" in found.damaged[0].reason
    assert key in {damage.key for damage in found.damaged}
    assert where(data_set, 0)[0] not in {damage.key for damage in found.damaged}
    assert verify(str(data_set), quick=True).damaged


def test_a_missing_shard_is_named(data_set):
    _, shard, _ = where(data_set, 39)
    (data_set / shard).unlink()
    (damage,) = verify(str(data_set), quick=True).damaged
    assert damage.shard == shard
    assert "cannot be read" in damage.reason


@pytest.mark.parametrize("quick", [True, False])
def test_an_index_of_other_shards_is_told(image_folder, data_set, tmp_path, quick):
    packed(image_folder, tmp_path / "other" / "set", options={"shard_bytes": 70_000}, shuffle=1)
    shutil.copy(tmp_path / "other" / "set" / INDEX_NAME, data_set / INDEX_NAME)
    found = verify(str(data_set), quick=quick)
    assert {damage.shard for damage in found.damaged} == {shard.name for shard in open_index(data_set).shards}
    assert any("the index is of other shards" in damage.reason for damage in found.damaged)


@pytest.mark.parametrize("quick", [True, False])
def test_a_shard_of_equal_names_and_sizes_with_other_bytes_is_told(tmp_path, quick):
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        for number in range(30):
            (tmp_path / name / f"{number:02d}.bin").write_bytes(f"{name:5} {number:02d}".encode() * 100)
        packed(tmp_path / name, tmp_path / f"{name}-packed" / "set")
    shutil.copy(tmp_path / "other-packed/set/set-000000.tar", tmp_path / "mine-packed/set/set-000000.tar")
    assert verify(str(tmp_path / "mine-packed/set"), quick=quick).damaged
    assert not verify(str(tmp_path / "other-packed/set"), quick=quick).damaged


def test_a_damaged_or_truncated_index_is_told(data_set):
    index = data_set / INDEX_NAME
    whole = index.read_bytes()
    index.write_bytes(whole[:-1])
    with pytest.raises(CorruptDataError, match="cut off"):
        verify(str(data_set))
    for offset in (0, 9, 100, len(whole) - 1, len(whole) - 900):
        index.write_bytes(whole)
        flip(index, offset)
        with pytest.raises(CorruptDataError, match="cannot be used"):
            verify(str(data_set))
    index.unlink()
    with pytest.raises(UsageError, match=r"no packed data set: it has no dataset\.index"):
        verify(str(data_set))


def test_a_file_that_is_no_index_is_not_called_damaged(data_set, tmp_path):
    (tmp_path / "x.squashfs").write_bytes(b"hsqs" + bytes(100))
    for work in (verify, lambda path: unpack(path, str(tmp_path / "back"))):
        with pytest.raises(UsageError, match="this file is no packed data set"):
            work(str(tmp_path / "x.squashfs"))
    with pytest.raises(UsageError, match="this is a file"):
        unpack(str(data_set), str(tmp_path / "x.squashfs"))
    assert verify(str(data_set / INDEX_NAME)).damaged == []


def test_unpacking_leaves_out_what_is_damaged_and_names_it(data_set, tmp_path):
    key, shard, offset = where(data_set, 7)
    flip(data_set / shard, offset)
    found = unpack(str(data_set), str(tmp_path / "back"), workers=2)
    assert (found.damaged, found.files) == ([f"{key}.jpg"], 39)
    assert not (tmp_path / "back" / f"{key}.jpg").exists()


def test_unpacking_can_take_some(data_set, tmp_path):
    found = unpack(str(data_set), str(tmp_path / "back"), only=["n01/*"])
    assert found.files == 10
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["n01"]
