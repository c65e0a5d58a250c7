"""`cordee.dataset(FOLDER)` gives the samples, labels and order that packing the folder gives; what it leaves out it says."""

from __future__ import annotations

import os
import warnings

import pytest

from cordee.core.errors import DataError
from cordee.systems.data.node.read.plain import PlainFolder
from cordee.systems.data.node.read.sources import open_source
from cordee.systems.data.node.shards.groups import TOOLS
from support.data.shards import packed, samples_read

TREES = {
    "many dots": [f"scan.{number:04d}.{ending}" for number in range(40) for ending in ("png", "txt")],
    "few dots": [f"scan.{number}.png" for number in range(4)],
    "capitals": ["a/x.jpg", "a/x.JPG", "a/X.jpg", "b/y.PNG", "b/y.txt"],
    "hidden": [".hid/1.jpg", ".hidden.txt", "a/.x.jpg", "a/1.jpg"],
    "no ending": ["README", "a/data", "a/data.bin", "trailing.", "..."],
    "order": ["a.jpg", "a-1.jpg", "a b.jpg", "ab.jpg", "b/a.jpg", "b-1/a.jpg"],
    "classes": ["dog/1.jpg", "cat/2.JPEG", "cat/in/3.webp", "ä/4.png"],
    "splits": ["train/c1/1.jpg", "train/c2/2.jpg", "val/c1/3.jpg"],
    "odd": ["two\nlines.txt", "no-\udcff.jpg", "new\nline/f.jpg", "v1.0/c.jpg"],
    "hidden beside classes": ["cat/1.jpg", "dog/2.jpg", ".hid/3.jpg", ".ipynb_checkpoints/1-checkpoint.jpg"],
    "litter": ["a/1.jpg", "a/._1.jpg", ".DS_Store", "b/Thumbs.db", "b/Desktop.ini", "b/2.jpg", "__MACOSX/a/._1.jpg"],
}


def write(folder, names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d " % number + os.fsencode(name))
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("names", TREES.values(), ids=TREES)
def test_a_folder_and_what_is_packed_of_it_are_the_same_data_set(tmp_path, names):
    write(tmp_path / "plain", names)
    (tmp_path / "plain/link.jpg").symlink_to(tmp_path / "plain" / names[0])
    packed(tmp_path / "plain", tmp_path / "packed")
    mine, theirs = samples_read(tmp_path / "plain"), samples_read(tmp_path / "packed")
    assert mine == theirs
    assert list(mine) == list(theirs)
    assert open_source(str(tmp_path / "plain")).classes == open_source(str(tmp_path / "packed")).classes


def test_what_a_folder_holds_that_is_no_sample_is_counted_and_said(tmp_path):
    write(tmp_path / "in", TREES["litter"])
    (tmp_path / "in/link.jpg").symlink_to("a/1.jpg")
    with pytest.warns(UserWarning, match="left out") as warned:
        assert PlainFolder(tmp_path / "in").size == 2
    said = str(warned[0].message)
    assert "5 left out: made by macOS or Windows, no data" in said
    assert "1 left out: link, not followed (link.jpg)" in said
    made = packed(tmp_path / "in", tmp_path / "out")
    assert {kind: len(names) for kind, names in made.left_out.items()} == {
        "made by macOS or Windows, no data": 5,
        "link, not followed": 1,
    }


def test_hidden_folders_and_those_of_tools_are_no_classes(tmp_path):
    write(tmp_path / "in", TREES["hidden beside classes"])
    made = packed(tmp_path / "in", tmp_path / "out")
    assert list(open_source(str(tmp_path / "out")).classes) == ["cat", "dog"]
    assert made.left_out == {TOOLS: [".ipynb_checkpoints/1-checkpoint.jpg"]}


def test_a_name_that_is_taken_but_for_capitals_is_said_and_nothing_is_lost(tmp_path):
    write(tmp_path / "in", ["a.JPG", "a.jpg"])
    with pytest.warns(UserWarning, match=r"names of 1 files are taken by others.*\(a\.jpg\)"):
        assert samples_read(tmp_path / "in") == {"a": {"jpg": b"0 a.JPG"}, "a~2": {"jpg": b"1 a.jpg"}}


def test_links_are_read_when_asked(tmp_path):
    write(tmp_path / "there", ["1.jpg", "2.jpg"])
    (tmp_path / "links").mkdir()
    (tmp_path / "links/all").symlink_to(tmp_path / "there")
    with pytest.raises(DataError, match="no files") as raised:
        open_source(str(tmp_path / "links"))
    assert "follow=True" in raised.value.next
    assert list(samples_read(tmp_path / "links", follow=True)) == ["all/1", "all/2"]


def test_patterns_choose_as_they_do_for_packing(tmp_path):
    write(tmp_path / "in", ["a.jpg", "a.txt", "b.jpg", "in/c.jpg"])
    with pytest.warns(UserWarning, match="not asked for"):
        found = samples_read(tmp_path / "in", include=["*.jpg"], exclude=["in/*"])
    assert found == {"a": {"jpg": b"0 a.jpg"}, "b": {"jpg": b"2 b.jpg"}}


def test_a_position_in_a_folder_with_plain_names_is_still_known(tmp_path):
    write(tmp_path, ["a.jpg", "a.txt", "b/c.jpg", "b-1/d.jpg"])
    assert PlainFolder(tmp_path).identity == "6a507e970bac9d55"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PlainFolder(tmp_path)
