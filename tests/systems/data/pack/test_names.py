"""Names that no key could be: line breaks, no UTF-8, no ending, leading dots, very long; all come back as they were."""

from __future__ import annotations

import os
import subprocess
import tarfile

import pytest

from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from support.data.shards import fields_by_key, packed, tree


@pytest.fixture(scope="module", autouse=True)
def _webdataset():
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global webdataset
    import webdataset


NAMES = [
    b"README",
    b".hidden",
    b".hidden.txt",
    b"trailing.",
    b"two\nlines.txt",
    b"no-utf8-\xff\xfe.jpg",
    b"no-utf8-\xff\xfe",
    "naïve-猫.png".encode(),
    b"a.JPG",
    b"a.jpg",
    b"b.tar.gz",
    b"x" * 240 + b".jpg",
    b"v1.0/c.jpg",
    b"deep/" + b"/".join([b"d" * 60] * 4) + b"/e.txt",
    b"\xff\xfe/" + b"y" * 200 + b".bin",
    b"new\nline/f.jpg",
    b"...",
]


@pytest.fixture
def odd_tree(tmp_path):
    root = os.fsencode(tmp_path / "odd")
    for number, name in enumerate(NAMES):
        path = root + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"%d " % number + name)
    os.makedirs(root + b"/empty/inside")
    return tmp_path / "odd"


def test_every_name_comes_back_with_its_bytes(odd_tree, tmp_path):
    packed(odd_tree, tmp_path / "out")
    assert verify(str(tmp_path / "out")).damaged == []
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(odd_tree)


def test_every_member_has_a_key_and_a_field_of_its_own(odd_tree, tmp_path):
    packed(odd_tree, tmp_path / "out")
    index = open_index(tmp_path / "out")
    keys = [index.key(sample) for sample in range(index.samples)]
    assert len(set(keys)) == len(keys) == len(NAMES) - 1  # .hidden and .hidden.txt are one sample
    assert not any("." in key.rpartition("/")[2] for key in keys)


def test_webdataset_reads_every_sample(odd_tree, tmp_path):
    packed(odd_tree, tmp_path / "out")
    shards = [str(path) for path in sorted((tmp_path / "out").glob("*.tar"))]
    read = {}
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        read[sample["__key__"]] = {key: value for key, value in sample.items() if not key.startswith("__")}
    assert read == fields_by_key(tmp_path / "out")


def test_gnu_tar_and_pythons_tarfile_agree_on_every_name(odd_tree, tmp_path):
    packed(odd_tree, tmp_path / "out", options={"shard_bytes": 10_000_000})
    (shard,) = (tmp_path / "out").glob("*.tar")
    (tmp_path / "gnu").mkdir()
    done = subprocess.run(["tar", "-C", tmp_path / "gnu", "-xf", shard], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with tarfile.open(shard) as archive:
        read = {os.fsencode(member.name): archive.extractfile(member).read() for member in archive if member.isfile()}
    assert {name: data for name, data in tree(tmp_path / "gnu").items() if data is not None} == read


def test_many_dots_in_names_are_no_fields(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(50):
        for ending in ("png", "txt"):
            (folder / f"scan.{number:04d}.{ending}").write_text(f"{number} {ending}")
    packed(folder, tmp_path / "out")
    found = fields_by_key(tmp_path / "out")
    assert len(found) == 50
    assert found["scan_0007"] == {"png": b"7 png", "txt": b"7 txt"}
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(folder)
