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

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from support.data.shards import digests, fields_by_key, packed, samples_read, tree


@pytest.fixture
def from_folder(image_folder, tmp_path):
    (image_folder / "empty").mkdir()
    packed(image_folder, tmp_path / "folder" / "images")
    return tmp_path / "folder" / "images"


@pytest.mark.usefixtures("real")
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


@pytest.mark.parametrize("folder", ["", "so-long-a-name-that-it-needs-a-record-of-its-own/" * 3])
@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_hard_link_is_packed_with_the_bytes_of_its_target_and_one_without_is_said(tmp_path, folder, kind):
    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as archive:
        member = tarfile.TarInfo(f"./{folder}x.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"data"))
        for name, target in (("y", f"./{folder}x.txt"), ("z", "nowhere.txt")):
            link = tarfile.TarInfo(f"./{name}.txt")
            link.type, link.linkname = tarfile.LNKTYPE, target
            archive.addfile(link)
    made = packed(tmp_path / "a.tar", tmp_path / "out")
    assert fields_by_key(tmp_path / "out") == {f"{folder}x": {"txt": b"data"}, "y": {"txt": b"data"}}
    assert made.left_out == {"no regular file": ["./z.txt"]}


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


def test_a_file_that_a_table_names_often_is_as_many_samples(image_folder, tmp_path):
    there, other = "images/n01/img_0001.jpg", "images/n01/img_0005.jpg"
    rows = [
        {"image": there, "caption": "first"},
        {"image": other, "caption": "another"},
        {"image": there, "caption": "second"},
        {"image": there, "caption": "first"},
    ]
    table = written_table(tmp_path, rows)
    packed(table, tmp_path / "out", labels="none")
    picture = (tmp_path / there).read_bytes()
    assert {
        key: (fields["jpg"], json.loads(fields["json"])) for key, fields in samples_read(tmp_path / "out").items()
    } == {
        "images/n01/img_0001": (picture, {"caption": "first"}),
        "images/n01/img_0001~2": (picture, {"caption": "second"}),
        "images/n01/img_0001~3": (picture, {"caption": "first"}),
        "images/n01/img_0005": (b"", {"caption": "another"}),
    }
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert (tmp_path / "back" / there).read_bytes() == picture
    assert packed(table, tmp_path / "out.squashfs", target="squashfs").samples == 4


def test_rows_with_names_of_many_dots_or_of_one_stem_are_a_sample_each(tmp_path):
    names = [f"scan.{number:04d}.png" for number in range(40)] + ["a/x.jpg", "a/x.png", "a/x.JPG"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    table = written_table(tmp_path, [{"path": name, "age": str(number)} for number, name in enumerate(names)])
    packed(table, tmp_path / "out")
    found = samples_read(tmp_path / "out")
    assert len(found) == len(names)
    assert found["scan_0007"] == {"png": b"scan.0007.png", "json": b'{"age": "7"}'}
    assert [found[key] for key in ("a/x", "a/x~2", "a/x~3")] == [
        {"jpg": b"a/x.jpg", "json": b'{"age": "40"}'},
        {"png": b"a/x.png", "json": b'{"age": "41"}'},
        {"jpg": b"a/x.JPG", "json": b'{"age": "42"}'},
    ]


def test_bytes_in_every_parquet_type_come_back_as_they_are(tmp_path):
    one, two = b"\xff\xd8\xff one", b"\x89PNG two"
    picture = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {
        "fixed": pyarrow.array([b"1234", b"5678"], pyarrow.binary(4)),
        "large": pyarrow.array([one, None], pyarrow.large_binary()),
        "list": pyarrow.array([[one, None, two], []], pyarrow.list_(pyarrow.binary())),
        "images": pyarrow.array([[{"bytes": one, "path": "x.JPEG"}], None], pyarrow.list_(picture)),
        "sized": pyarrow.array([[b"ab", b"cd"], [b"ef", b"gh"]], pyarrow.list_(pyarrow.binary(2), 2)),
        "image/encoded": pyarrow.array([one, two], pyarrow.binary()),
        "kept": pyarrow.array(
            [{"bytes": two, "width": 3}, None],
            pyarrow.struct([("bytes", pyarrow.binary()), ("width", pyarrow.int32())]),
        ),
        "afar": pyarrow.array([{"bytes": None, "path": "far.jpg"}, None], picture),
        "words": pyarrow.array([b"w", b"x"], pyarrow.binary()).dictionary_encode(),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    made = packed(tmp_path / "a.parquet", tmp_path / "out")
    assert made.left_out == {"a path without bytes": ["row 0: far.jpg"]}
    found = samples_read(tmp_path / "out")
    assert found["000000000"] == {
        "fixed": b"1234",
        "large.jpg": one,
        "list.0.jpg": one,
        "list.2.png": two,
        "images.0.jpeg": one,
        "sized.0": b"ab",
        "sized.1": b"cd",
        "image.encoded.jpg": one,
        "kept.png": two,
        "words": b"w",
        "json": json.dumps({"kept": {"width": 3}, "afar": {"path": "far.jpg"}}).encode(),
    }
    assert found["000000001"] == {
        "fixed": b"5678",
        "sized.0": b"ef",
        "sized.1": b"gh",
        "image.encoded.png": two,
        "words": b"x",
    }


def test_bytes_of_a_view_type_come_back_as_they_are(tmp_path):
    view = pyarrow.array([b"\xff\xd8\xff one", b"two"], pyarrow.binary_view())
    with pyarrow.ipc.new_file(str(tmp_path / "a.arrow"), pyarrow.schema([("data", view.type)])) as writer:
        writer.write_table(pyarrow.table({"data": view}))
    packed(tmp_path / "a.arrow", tmp_path / "out")
    assert samples_read(tmp_path / "out") == {"000000000": {"jpg": b"\xff\xd8\xff one"}, "000000001": {"data": b"two"}}


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.map_(pyarrow.string(), pyarrow.binary()),
        pyarrow.list_(pyarrow.list_(pyarrow.binary())),
        pyarrow.struct([("left", pyarrow.binary()), ("right", pyarrow.binary())]),
        pyarrow.struct([("bytes", pyarrow.binary()), ("mask", pyarrow.large_binary())]),
    ],
    ids=str,
)
def test_bytes_where_no_field_could_be_are_refused_by_name(tmp_path, kind):
    table = pyarrow.table({"id": [1], "odd": pyarrow.array([None], kind)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="holds bytes in a shape") as raised:
        packed(tmp_path / "a.parquet", tmp_path / "out")
    assert "column odd of " in raised.value.given
    assert "drop_columns(['odd'])" in raised.value.next


def test_times_and_decimals_are_texts_in_json(tmp_path):
    columns = {
        "at": pyarrow.array([0], pyarrow.timestamp("s")),
        "price": pyarrow.array([None], pyarrow.decimal128(5, 2)),
        "map": pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out")
    (sample,) = samples_read(tmp_path / "out").values()
    assert json.loads(sample["json"]) == {"at": "1970-01-01 00:00:00", "price": None, "map": [["a", 1]]}


def test_many_columns_with_dots_are_fields_of_one_sample(tmp_path):
    columns = {f"part.{number}": [b"%d" % number] for number in range(40)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out")
    (sample,) = samples_read(tmp_path / "out").values()
    assert sample == {name: values[0] for name, values in columns.items()}


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
