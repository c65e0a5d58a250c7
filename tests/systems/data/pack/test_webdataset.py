"""Shards of the webdataset library are indexed and read, and it reads ours."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.shards.index import INDEX_NAME, open_index
from cordee.systems.data.pack.shards.index_only import index_shards
from cordee.systems.data.pack.verify import verify
from support.data.shards import fields_by_key, packed, samples_read


@pytest.fixture(scope="module", autouse=True)
def _webdataset():
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global webdataset
    import webdataset


def write_theirs(folder, count=30):
    """Write shards with the library's own writer; return what is in them."""
    folder.mkdir()
    expected = {}
    with webdataset.ShardWriter(str(folder / "theirs-%06d.tar"), maxcount=8, verbose=0) as writer:
        for number in range(count):
            sample = {
                "jpg": bytes([number]) * (number * 37),
                "json": b'{"number": %d}' % number,
                "cls": b"%d" % (number % 5),
            }
            expected[f"{number:05d}"] = sample
            writer.write({"__key__": f"{number:05d}", **sample})
    return expected


@pytest.mark.parametrize(("workers", "crc"), [(1, True), (2, True), (1, False)])
def test_an_index_of_their_shards_says_where_every_field_is(tmp_path, workers, crc):
    expected = write_theirs(tmp_path / "theirs")
    made = index_shards(str(tmp_path / "theirs"), workers=workers, crc=crc)
    assert (made.packed.samples, made.packed.shards, made.duplicates) == (30, 4, 0)
    index = open_index(tmp_path / "theirs")
    assert index.columns["label"].tolist() == [number % 5 for number in range(30)]
    assert ("crc32" in index.columns) is crc
    found = verify(str(tmp_path / "theirs"))
    assert (found.damaged, found.checked) == ([], crc)
    if crc:
        assert fields_by_key(tmp_path / "theirs") == expected


def test_the_index_may_lie_elsewhere(tmp_path):
    expected = write_theirs(tmp_path / "theirs")
    index_shards(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    assert not (tmp_path / "theirs" / INDEX_NAME).exists()
    assert fields_by_key(tmp_path / "mine") == expected


def test_they_read_ours(image_folder, tmp_path):
    packed(image_folder, tmp_path / "out")
    shards = [str(path) for path in sorted((tmp_path / "out").glob("*.tar"))]
    read = {sample["__key__"]: sample for sample in webdataset.WebDataset(shards, shardshuffle=False)}
    ours = fields_by_key(tmp_path / "out")
    index = open_index(tmp_path / "out")
    assert {key: sample["jpg"] for key, sample in read.items()} == {key: fields["jpg"] for key, fields in ours.items()}
    assert [int(read[index.key(sample)]["cls"]) for sample in range(40)] == index.columns["label"].tolist()


def add(archive, name, data=b"x", kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.size, member.type = len(data) if kind == tarfile.REGTYPE else 0, kind
    archive.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_any_form_are_read(tmp_path, form):
    (tmp_path / "set").mkdir()
    names = ["a/b.txt", "d" * 90 + "/" + "e" * 60 + ".txt", "naïve.txt"]
    if form != tarfile.USTAR_FORMAT:
        names.append("long" * 70 + ".txt")
    with tarfile.open(tmp_path / "set" / "x.tar", "w", format=form) as archive:
        add(archive, "a", kind=tarfile.DIRTYPE)
        for name in names:
            add(archive, name, name.encode())
    index_shards(str(tmp_path / "set"))
    assert fields_by_key(tmp_path / "set") == {name.removesuffix(".txt"): {"txt": name.encode()} for name in names}


def test_duplicate_keys_of_shards_are_named(tmp_path):
    (tmp_path / "set").mkdir()
    for shard in ("a", "b"):
        with tarfile.open(tmp_path / "set" / f"{shard}.tar", "w") as archive:
            add(archive, "000.txt")
            add(archive, f"{shard}.txt")
            add(archive, "README")
    made = index_shards(str(tmp_path / "set"))
    assert (made.packed.samples, made.duplicates, made.duplicate_keys) == (4, 1, ["000"])
    assert made.packed.left_out == {
        "no sample of WebDataset": ["a.tar: README: no KEY.field", "b.tar: README: no KEY.field"]
    }


def test_what_is_no_set_of_shards_is_told(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no shards"):
        index_shards(str(tmp_path / "none"))


def test_shards_that_are_indexed_are_not_indexed_again_while_they_are_as_they_were(tmp_path):
    theirs = tmp_path / "theirs"
    write_theirs(theirs)
    made = index_shards(str(theirs), crc=False)
    again = index_shards(str(theirs), crc=False)
    assert (made.packed.already, again.packed.already) == (False, True)
    assert (again.packed.id, again.packed.samples, again.packed.bytes) == (
        made.packed.id,
        made.packed.samples,
        made.packed.bytes,
    )
    with pytest.raises(UsageError, match="an index without check sums already"):
        index_shards(str(theirs))
    shard = theirs / "theirs-000000.tar"
    later = (theirs / "dataset.index").stat().st_mtime + 5
    os.utime(shard, (later, later))
    with pytest.raises(UsageError, match="an index already, and the shards may have changed since"):
        index_shards(str(theirs), crc=False)
    shard.unlink()
    with pytest.raises(UsageError, match="an index of other shards already"):
        index_shards(str(theirs), crc=False)


def test_a_damaged_shard_is_named_and_no_index_is_made(tmp_path):
    write_theirs(tmp_path / "theirs")
    shard = tmp_path / "theirs" / "theirs-000002.tar"
    shard.write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(CorruptDataError, match="the shard is damaged") as told:
        index_shards(str(tmp_path / "theirs"), workers=2)
    assert str(shard) in told.value.given
    assert not (tmp_path / "theirs" / INDEX_NAME).exists()
    with tarfile.open(shard, "w") as archive:
        add(archive, "a.txt")
        add(archive, "a.TXT")
    with pytest.raises(CorruptDataError, match="the same field twice"):
        index_shards(str(tmp_path / "theirs"))


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_member_with_holes_is_left_out_and_said_and_all_others_are_read(tmp_path, form):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "c.txt"):
        (tmp_path / "in" / name).write_text(name)
    with (tmp_path / "in/b.bin").open("wb") as file:  # more pieces than the first header has room for
        for piece in range(12):
            file.seek(piece * 200_000)
            file.write(b"piece")
        file.truncate(4_000_000)
    (tmp_path / "shards").mkdir()
    names = ["a.txt", "b.bin", "c.txt"]
    shard = tmp_path / "shards/x.tar"
    subprocess.run(["tar", "-C", tmp_path / "in", "--sparse", f"--format={form}", "-cf", shard, *names], check=True)
    assert shard.stat().st_size < 2_000_000
    indexed = index_shards(str(tmp_path / "shards"))
    assert indexed.packed.left_out == {"no sample of WebDataset": ["x.tar: b.bin: stored with holes (GNU sparse)"]}
    assert samples_read(tmp_path / "shards") == {"a": {"txt": b"a.txt"}, "c": {"txt": b"c.txt"}}
    assert verify(str(tmp_path / "shards")).damaged == []
    with pytest.raises(DataError, match="GNU sparse") as raised:
        packed(shard, tmp_path / "out")
    assert "b.bin" in raised.value.given
