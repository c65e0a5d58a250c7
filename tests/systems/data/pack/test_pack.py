"""Packing a folder: what comes out, the same for any number of workers, whole or not at all."""

from __future__ import annotations

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.shards.index import open_index
from support.data.shards import digests, fields_by_key, members, packed


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


@pytest.mark.parametrize("target", ["webdataset", "zarr"])
def test_what_is_packed_is_not_packed_again_while_its_source_is_as_it_was(image_folder, tmp_path, target):
    made = packed(image_folder, tmp_path / "out", target=target)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = packed(image_folder, tmp_path / "out", target=target)
    assert (made.already, again.already) == (False, True)
    assert (again.id, again.samples, again.bytes, again.shards) == (made.id, made.samples, made.bytes, made.shards)
    assert again.packed_s == pytest.approx((tmp_path / "out" / "dataset.index").stat().st_mtime)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_a_packed_data_set_of_something_else_is_not_packed_over(image_folder, tmp_path):
    made = packed(image_folder, tmp_path / "out")
    before = digests(tmp_path / "out")
    for text, given in (
        ("another --shard-size\n", {"options": {"shard_bytes": 70_000}}),
        ("changed\n", {"shuffle": 1}),
    ):
        with pytest.raises(UsageError, match=f"there already.*{text}"):
            packed(image_folder, tmp_path / "out", **given)
    (image_folder / "n00" / "new.jpg").write_bytes(b"new")
    with pytest.raises(UsageError, match=r"there already.*another source, or it has changed") as caught:
        packed(image_folder, tmp_path / "out")
    assert "--restart" in str(caught.value)
    assert digests(tmp_path / "out") == before
    assert packed(image_folder, tmp_path / "out", options={"restart": True}).samples == made.samples + 1


@pytest.mark.parametrize(("harm", "said"), [("unlink", "is not there"), ("write_bytes", "has 1 bytes")])
def test_a_packed_data_set_that_lost_a_shard_is_not_called_packed(image_folder, tmp_path, harm, said):
    packed(image_folder, tmp_path / "out")
    shard = sorted((tmp_path / "out").glob("*.tar"))[1]
    getattr(shard, harm)(*([b"x"] if harm == "write_bytes" else []))
    with pytest.raises(UsageError, match=f"not whole any more: its shard {shard.name} {said}"):
        packed(image_folder, tmp_path / "out")


def test_a_data_set_of_which_nothing_says_what_it_was_made_of_is_not_packed_over(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out")
    (tmp_path / "out" / "packed.json").write_text("{}")
    with pytest.raises(UsageError, match="nothing says what it was made of"):
        packed(image_folder, tmp_path / "out")


def test_a_folder_that_holds_something_else_is_left_alone(image_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(UsageError, match="something else"):
        packed(image_folder, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_packed_data_set_is_not_packed_as_if_its_shards_were_samples(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out")
    with pytest.raises(UsageError, match="this is a packed data set already"):
        packed(tmp_path / "out", tmp_path / "again")
    assert packed(tmp_path / "out", tmp_path / "again", include=["*.tar"]).samples > 1


@pytest.mark.parametrize("target", ["webdataset", "tokens"])
def test_a_file_is_no_place_for_a_data_set(image_folder, tmp_path, target):
    (tmp_path / "mine.txt").write_text("words")
    with pytest.raises(UsageError, match="this is a file"):
        packed(image_folder, tmp_path / "mine.txt", target=target)
    assert (tmp_path / "mine.txt").read_text() == "words"


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
