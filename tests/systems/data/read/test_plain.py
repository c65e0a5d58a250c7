"""Reading a folder of files before it is packed, and finding out what lies at an address."""

from __future__ import annotations

import numpy
import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.read import plain
from cordee.systems.data.node.read.packed.source import PackedSource
from cordee.systems.data.node.read.plain import PlainFolder
from cordee.systems.data.node.read.sources import open_source
from cordee.systems.data.node.read.tokens.index import write_token_index
from cordee.systems.data.node.read.tokens.source import TokenSource
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack as pack_shards
from cordee.systems.data.pack.build import plan_of


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_files_with_one_stem_are_one_sample_and_folders_are_classes(tmp_path):
    write(tmp_path, {"dog/1.jpg": b"d1", "dog/1.npy": b"{}", "cat/2.JPG": b"c2", "cat/in/3.jpg": b"c3"})
    source = PlainFolder(tmp_path, keys=True)
    assert source.read(numpy.array([2, 0, 1])) == [
        {"key": "dog/1", "jpg": b"d1", "npy": b"{}", "label": 1},
        {"key": "cat/2", "jpg": b"c2", "label": 0},
        {"key": "cat/in/3", "jpg": b"c3", "label": 0},
    ]
    assert source.classes == ("cat", "dog")
    assert (source.counts.opens, source.counts.requests, source.counts.bytes) == (4, 4, 8)
    assert PlainFolder(tmp_path, ["npy"]).read(numpy.array([2])) == [{"npy": b"{}", "label": 1}]


@pytest.mark.parametrize("names", [["a.jpg", "b/c.jpg"], ["train/a.jpg", "val/a.jpg"], ["one/a.jpg"]])
def test_folders_that_are_no_classes_give_no_labels(tmp_path, names):
    source = PlainFolder(write(tmp_path, dict.fromkeys(names, b"x")))
    assert source.read(numpy.arange(source.size)) == [{"jpg": b"x"}] * len(names)


def test_a_folder_gives_what_its_packed_shards_give(tmp_path):
    names = [
        "b/2.jpg",
        "b/10.jpg",
        "b/x/1.jpg",
        "b/2.npy",
        "a/1.wav",
        "a/Q.JPG",
        "ä/1.jpg",
        "c/1.png",
        "c/2.png",
        "c/3.png",
    ]
    write(tmp_path / "plain", {name: name.encode() for name in [*names, "c/notes"]})
    pack_shards(plan_of(str(tmp_path / "plain")), str(tmp_path / "packed"), PackOptions(durable=False))
    sources = [open_source(str(tmp_path / name), keys=True) for name in ("plain", "packed")]
    plain_samples, packed_samples = (source.read(numpy.arange(source.size)) for source in sources)
    assert plain_samples == packed_samples
    assert sources[0].classes == sources[1].classes


def test_the_identity_changes_with_the_files(tmp_path):
    write(tmp_path, {"a.txt": b"1"})
    first = PlainFolder(tmp_path).identity
    assert PlainFolder(tmp_path).identity == first
    write(tmp_path, {"b.txt": b"1"})
    assert PlainFolder(tmp_path).identity != first


def test_a_file_that_vanished_is_named(tmp_path):
    source = PlainFolder(write(tmp_path, {"a.txt": b"1", "b.txt": b"2"}))
    (tmp_path / "b.txt").unlink()
    with pytest.raises(DataError, match="No such file") as raised:
        source.read(numpy.arange(2))
    assert raised.value.given.endswith("b.txt")


def test_fields_that_no_file_has_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="no files"):
        PlainFolder(tmp_path)
    write(tmp_path, {"a.txt": b"1"})
    with pytest.raises(UsageError, match="no file has") as raised:
        PlainFolder(tmp_path, ["jpg"])
    assert raised.value.allowed == "txt"


def test_many_files_are_a_warning_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "MANY_FILES", 2)
    with pytest.warns(UserWarning, match="cordee data pack"):
        PlainFolder(write(tmp_path, {"a.txt": b"1", "b.txt": b"2"}))


def test_a_link_to_a_folder_is_passed_over(tmp_path):
    write(tmp_path, {"a/1.txt": b"1", "b/1.txt": b"2"})
    (tmp_path / "a/loop").symlink_to(tmp_path)
    assert PlainFolder(tmp_path).size == 2


def test_what_lies_at_an_address_decides_how_it_is_read(tmp_path, pack, make):
    packed = pack(tmp_path / "packed", make(3))
    assert isinstance(open_source(str(packed)), PackedSource)
    assert isinstance(open_source(str(packed / "dataset.index"), keys=True), PackedSource)
    assert isinstance(open_source(str(write(tmp_path / "plain", {"a.txt": b"1"}))), PlainFolder)
    for address in (tmp_path / "nothing", tmp_path / "plain/a.txt"):
        with pytest.raises(DataError) as raised:
            open_source(str(address))
        assert "cordee data pack" in raised.value.next


def test_an_index_beside_no_shards_finds_them_at_its_root(tmp_path, pack, make):
    samples = make(5)
    packed = pack(tmp_path / "packed", samples)
    (tmp_path / "moved").mkdir()
    (packed / "dataset.index").rename(tmp_path / "moved/dataset.index")
    source = open_source(str(tmp_path / "moved"), fields=["txt"], root=str(packed))
    assert source.read(numpy.array([4])) == [{"txt": b"sample 4", "label": 1}]


def test_shards_without_an_index_are_not_taken_for_a_folder_of_files(tmp_path, pack, make):
    packed = pack(tmp_path / "packed", make(3))
    (packed / "dataset.index").unlink()
    with pytest.raises(DataError, match="have no index") as raised:
        open_source(str(packed))
    assert "--index-only" in raised.value.next
    (packed / ".packing").mkdir()
    with pytest.raises(DataError, match="still being packed"):
        open_source(str(packed))


def test_a_token_set_is_recognised_by_its_index(tmp_path):
    (tmp_path / "set.bin").write_bytes(numpy.arange(20, dtype="<u2").tobytes())
    write_token_index(tmp_path / "set.idx", "<u2", numpy.array([12, 8]))
    for address in (tmp_path, tmp_path / "set", tmp_path / "set.bin", tmp_path / "set.idx"):
        source = open_source(str(address), length=4)
        assert isinstance(source, TokenSource)
        assert source.read(numpy.array([1]))[0]["tokens"].tolist() == [4, 5, 6, 7, 8]
