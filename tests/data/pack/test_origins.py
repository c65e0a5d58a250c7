"""Archives, tables and Parquet are packed like folders, and damaged ones are told."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import tarfile
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from cordee.data.pack.unpack import unpack
from cordee.data.pack.verify import verify
from cordee.data.shards.index import open_index
from cordee.errors import CorruptDataError, DataError, UsageError
from cordee.testing.shards import digests, fields_by_key, packed, tree


@pytest.fixture
def from_folder(image_folder, tmp_path):
    (image_folder / "empty").mkdir()
    packed(image_folder, tmp_path / "folder" / "images")
    return tmp_path / "folder" / "images"


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "zip"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_archive_gives_the_same_bytes_as_its_folder(image_folder, from_folder, tmp_path, ending, workers):
    archive = tmp_path / f"images.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            for path in sorted(image_folder.rglob("*"), reverse=True):
                made.write(path, path.relative_to(image_folder))
    else:
        subprocess.run(["tar", "-C", image_folder, "-caf", archive, "."], check=True)
    packed(
        archive, tmp_path / "out" / "images", options={"workers": workers}, origin_options={"work": str(tmp_path / "o")}
    )
    made, expected = digests(tmp_path / "out" / "images"), digests(from_folder)
    assert made.pop("packed.json") != expected.pop("packed.json")
    assert made == expected


def test_the_last_member_of_a_name_counts_and_links_are_said(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for text in (b"old", b"newer"):
            member = tarfile.TarInfo("x.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "x.txt"
        archive.addfile(link)
        out = tarfile.TarInfo("../y.txt")
        archive.addfile(out)
    made = packed(tmp_path / "a.tar", tmp_path / "out")
    assert fields_by_key(tmp_path / "out") == {"x": {"txt": b"newer"}}
    assert made.left_out == {
        "replaced by a later member of the same name": ["x.txt"],
        "no regular file": ["link.txt"],
        "leads out of the archive": ["../y.txt"],
    }


def test_a_damaged_archive_is_told_and_nothing_is_made(image_folder, tmp_path):
    whole = tmp_path / "whole.tar"
    subprocess.run(["tar", "-C", image_folder, "-cf", whole, "."], check=True)
    data = whole.read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(data)[:-5000])
    (tmp_path / "no.tar.gz").write_bytes(b"no archive at all")
    (tmp_path / "no.zip").write_bytes(b"no archive at all")
    (tmp_path / "no.tar").write_bytes(b"no archive at all" * 100)
    for name in ("cut.tar", "cut.tar.gz", "no.tar.gz", "no.zip", "no.tar"):
        with pytest.raises(CorruptDataError, match="the archive is damaged"):
            packed(tmp_path / name, tmp_path / "out", origin_options={"work": str(tmp_path / "out")})
        assert not (tmp_path / "out" / "dataset.index").exists()
        assert not (tmp_path / "out" / ".packing-source").exists()


def test_a_damaged_member_of_a_zip_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.txt", "first words")
        archive.writestr("two.txt", "other words")
    data = (tmp_path / "a.zip").read_bytes().replace(b"other words", b"OTHER words")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError) as told:
        packed(tmp_path / "a.zip", tmp_path / "out")
    assert "two.txt: the archive is damaged there" in told.value.given


def written_table(folder, rows: list[dict[str, str]], name: str = "table.csv") -> str:
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(folder / name)


def test_a_table_gives_files_classes_and_what_else_it_says(image_folder, tmp_path):
    rows = [
        {"path": f"images/n01/img_{number:04d}.jpg", "species": species, "age": str(number)}
        for number, species in ((1, "wren"), (5, "robin"), (9, "wren"))
    ]
    table = written_table(tmp_path, rows)
    packed(table, tmp_path / "out", origin_options={"label_column": "species"})
    index = open_index(tmp_path / "out")
    assert index.classes == ("robin", "wren")
    assert index.columns["label"].tolist() == [1, 0, 1]
    found = fields_by_key(tmp_path / "out")
    assert found["images/n01/img_0005"] == {"jpg": b"", "json": json.dumps({"age": "5"}).encode()}
    assert found["images/n01/img_0009"]["jpg"] == (image_folder / "n01" / "img_0009.jpg").read_bytes()


def test_faults_of_a_table_are_told(image_folder, tmp_path):
    there, missing = "images/n01/img_0001.jpg", "images/n01/none.jpg"
    twice = written_table(tmp_path, [{"path": there, "label": "1"}, {"path": there, "label": "2"}], "twice.csv")
    with pytest.raises(DataError, match="occur more than once") as told:
        packed(twice, tmp_path / "out")
    assert there in told.value.given
    gone = written_table(tmp_path, [{"path": there}, {"path": missing}], "gone.csv")
    with pytest.raises(DataError, match="1 file cannot be read") as told:
        packed(gone, tmp_path / "out")
    assert missing in told.value.given
    assert packed(gone, tmp_path / "skipped", options={"skip_unreadable": True}).samples == 1
    unclear = written_table(tmp_path, [{"a": there}], "unclear.csv")
    with pytest.raises(UsageError, match="not clear"):
        packed(unclear, tmp_path / "out")
    (tmp_path / "short.csv").write_text(f"path,label\n{there}\n")
    with pytest.raises(DataError, match="another number of cells"):
        packed(tmp_path / "short.csv", tmp_path / "out")


def test_parquet_as_hugging_face_writes_it_becomes_samples(image_folder, tmp_path):
    pictures = [b"\xff\xd8\xff" + path.read_bytes() for path in sorted(image_folder.rglob("*.jpg"))]
    rows = [
        {
            "image": {"bytes": data, "path": None},
            "label": number % 3,
            "caption": f"picture {number}",
            "score": number / 2,
        }
        for number, data in enumerate(pictures)
    ]
    about = {"info": {"features": {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}}}
    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(about)})
    (tmp_path / "hub").mkdir()
    for part in range(2):
        half = table.slice(part * 20, 20)
        pyarrow.parquet.write_table(half, tmp_path / "hub" / f"train-{part}.parquet", row_group_size=7)
    for workers in (1, 3):
        packed(tmp_path / "hub", tmp_path / f"out{workers}" / "set", options={"workers": workers})
    assert digests(tmp_path / "out1" / "set") == digests(tmp_path / "out3" / "set")
    found = fields_by_key(tmp_path / "out1" / "set")
    assert [found[f"{number:09d}"]["jpg"] for number in range(40)] == pictures
    assert found["000000031"]["caption.txt"] == b"picture 31"
    assert json.loads(found["000000031"]["json"]) == {"score": 15.5}
    index = open_index(tmp_path / "out1" / "set")
    assert index.classes == ("a", "b", "c")
    assert index.columns["label"].tolist() == [number % 3 for number in range(40)]
    assert verify(str(tmp_path / "out1" / "set")).damaged == []


def test_what_was_packed_from_an_archive_unpacks_to_its_tree(image_folder, tmp_path):
    (image_folder / "empty" / "inside").mkdir(parents=True)
    subprocess.run(["tar", "-C", tmp_path, "-cf", tmp_path / "a.tar", "images"], check=True)
    packed(tmp_path / "a.tar", tmp_path / "out")
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert tree(tmp_path / "back" / "images") == tree(image_folder)
