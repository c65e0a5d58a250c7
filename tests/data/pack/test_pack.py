"""Packing a folder: what comes out, the same for any number of workers, whole or not at all."""

from __future__ import annotations

import pytest

from cordee.data.shards.index import open_index
from cordee.errors import DataError, UsageError
from cordee.testing.shards import digests, fields_by_key, members, packed


def test_every_file_is_in_the_shards_and_the_index_says_where(image_folder, tmp_path):
    made = packed(image_folder, tmp_path / "out")
    files = {str(path.relative_to(image_folder)): path.read_bytes() for path in image_folder.rglob("*.jpg")}
    assert {name: data for name, data in members(tmp_path / "out").items() if name.endswith(".jpg")} == files
    assert fields_by_key(tmp_path / "out") == {name.removesuffix(".jpg"): {"jpg": data} for name, data in files.items()}
    assert (made.samples, made.bytes) == (40, sum(map(len, files.values())))
    assert made.shards == len(list((tmp_path / "out").glob("*.tar"))) > 1
    assert not (tmp_path / "out" / ".packing").exists()


def test_first_folders_are_classes_and_readers_of_webdataset_get_them_as_cls(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out")
    index = open_index(tmp_path / "out")
    assert index.classes == ("n00", "n01", "n02", "n03")
    for sample, label in enumerate(index.columns["label"]):
        assert index.key(sample).startswith(index.classes[label])
        assert members(tmp_path / "out")[index.key(sample) + ".cls"] == b"%d" % label
    assert index.fields == ("jpg",)


def test_the_result_is_the_same_for_any_number_of_workers(image_folder, tmp_path):
    packed(image_folder, tmp_path / "one" / "set")
    packed(image_folder, tmp_path / "three" / "set", options={"workers": 3})
    assert digests(tmp_path / "one" / "set") == digests(tmp_path / "three" / "set")


def test_shards_are_of_about_equal_size_and_none_is_larger_than_asked_for(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out", options={"shard_bytes": 65_536})
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.tar")]
    assert max(sizes) <= 65_536
    assert min(sizes) > max(sizes) / 2


def test_a_file_larger_than_a_shard_gets_one_of_its_own(image_folder, tmp_path):
    (image_folder / "n02" / "large.jpg").write_bytes(bytes(3_000_000))
    packed(image_folder, tmp_path / "out", options={"shard_bytes": 65_536})
    index = open_index(tmp_path / "out")
    large = [shard for shard in index.shards if shard.bytes > 65_536]
    assert [shard.samples for shard in large] == [1]
    assert fields_by_key(tmp_path / "out")["n02/large"]["jpg"] == bytes(3_000_000)


def test_a_seed_shuffles_the_order_and_loses_nothing(image_folder, tmp_path):
    packed(image_folder, tmp_path / "plain")
    packed(image_folder, tmp_path / "mixed", shuffle=3)
    plain, mixed = open_index(tmp_path / "plain"), open_index(tmp_path / "mixed")
    first = [plain.key(sample) for sample in range(40)]
    second = [mixed.key(sample) for sample in range(40)]
    assert first == sorted(first) != second
    assert sorted(second) == first


def test_files_with_one_stem_are_one_sample(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for stem in ("a", "b"):
        for ending in ("jpg", "txt", "json", "seg.png"):
            (folder / f"{stem}.{ending}").write_text(f"{stem} {ending}")
    (folder / "c.txt").write_text("alone")
    packed(folder, tmp_path / "out")
    found = fields_by_key(tmp_path / "out")
    assert sorted(found) == ["a", "b", "c"]
    assert sorted(found["a"]) == ["jpg", "json", "seg.png", "txt"]
    assert found["b"]["seg.png"] == b"b seg.png"
    assert found["c"] == {"txt": b"alone"}


def test_a_packed_data_set_is_not_packed_over(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out")
    before = digests(tmp_path / "out")
    with pytest.raises(UsageError, match="there already"):
        packed(image_folder, tmp_path / "out")
    assert digests(tmp_path / "out") == before
    packed(image_folder, tmp_path / "out", options={"restart": True})
    assert digests(tmp_path / "out") == before


def test_a_folder_that_holds_something_else_is_left_alone(image_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(UsageError, match="something else"):
        packed(image_folder, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("inside", ["", "packed", "n00/packed"])
def test_nothing_is_packed_into_its_own_source(image_folder, inside):
    with pytest.raises(UsageError, match="into itself"):
        packed(image_folder, image_folder / inside)


def test_nothing_to_pack_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="nothing to pack"):
        packed(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(DataError, match="nothing to pack"):
        packed(tmp_path / "missing", tmp_path / "out")


def test_patterns_choose_what_is_packed_and_what_is_not_is_said(image_folder, tmp_path):
    made = packed(image_folder, tmp_path / "out", include=["n01/*"], exclude=["img_0001.jpg"])
    assert sorted(fields_by_key(tmp_path / "out"))[0] == "n01/img_0005"
    assert made.samples == 9
    assert made.left_out == {"not asked for (--include, --exclude)": ["31 files"]}
