"""Files that hold many samples are packed as what they are, or refused with words; none becomes one sample unsaid."""

from __future__ import annotations

import gzip
import io
import json
import tarfile

import pyarrow
import pyarrow.parquet
import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.read.sources import open_source
from support.data.shards import packed, samples_read


@pytest.fixture(scope="module", autouse=True)
def _tfrecord():
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global tfrecord
    import tfrecord


PICTURE = b"\xff\xd8\xff"


def table(first, count=3):
    return pyarrow.table({"image": [PICTURE + b"%d" % (first + row) for row in range(count)]})


def rows(count):
    return {f"{row:09d}": {"jpg": PICTURE + b"%d" % row} for row in range(count)}


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_records(path, count=3, first=0):
    writer = tfrecord.TFRecordWriter(str(path))
    for number in range(first, first + count):
        writer.write({"image/encoded": (PICTURE + b"%d" % number, "byte"), "image/class/label": (number, "int")})
    writer.close()


@pytest.fixture
def hub(tmp_path):
    """A data set as it is kept on Hugging Face's hub."""
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    write(folder, **{"README.md": b"---", ".gitattributes": b"*", "LICENSE": b"free"})
    for number in range(2):
        pyarrow.parquet.write_table(table(3 * number), folder / f"data/train-0000{number}-of-00002.parquet")
    return folder


def test_parquet_beside_a_readme_is_rows(hub, tmp_path):
    made = packed(hub, tmp_path / "out")
    assert samples_read(tmp_path / "out") == rows(6)
    assert made.left_out == {"beside the tables, no rows": [".gitattributes", "LICENSE", "README.md"]}


def test_splits_are_not_joined_unless_they_are_named(hub, tmp_path):
    pyarrow.parquet.write_table(table(6), hub / "data/test-00000-of-00001.parquet")
    with pytest.raises(UsageError, match="several splits: test, train") as raised:
        packed(hub, tmp_path / "out")
    assert "--include" in raised.value.next
    packed(hub, tmp_path / "out", include=["data/train-*"])
    assert samples_read(tmp_path / "out") == rows(6)
    packed(hub, tmp_path / "both", include=["data/*"])
    assert len(samples_read(tmp_path / "both")) == 9


def test_patterns_of_fields_still_choose_among_fields(hub, tmp_path):
    packed(hub, tmp_path / "out", include=["00000000[12].*"])
    assert list(samples_read(tmp_path / "out")) == ["000000001", "000000002"]


def test_partitions_whose_column_only_a_folder_names_are_refused(tmp_path):
    for kind in "ab":
        (tmp_path / f"in/kind={kind}").mkdir(parents=True)
        pyarrow.parquet.write_table(table(0), tmp_path / f"in/kind={kind}/part-0.parquet")
    with pytest.raises(UsageError, match="partitioned"):
        packed(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_arrow_as_save_to_disk_writes_it_is_rows(tmp_path, kind):
    write(tmp_path / "saved", **{"state.json": b"{}", "dataset_info.json": b"{}"})
    for number in range(2):
        part = table(3 * number)
        new = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
        with new(str(tmp_path / f"saved/data-0000{number}-of-00002.arrow"), part.schema) as writer:
            writer.write_table(part, max_chunksize=2)
    packed(tmp_path / "saved", tmp_path / "out")
    assert samples_read(tmp_path / "out") == rows(6)
    packed(tmp_path / "saved/data-00000-of-00002.arrow", tmp_path / "one")
    assert samples_read(tmp_path / "one") == rows(3)
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "saved/data-00000-of-00002.arrow").read_bytes()[:100])
    with pytest.raises(DataError, match="no whole Arrow file"):
        packed(tmp_path / "cut.arrow", tmp_path / "cut")


@pytest.mark.parametrize("name", ["x.tfrecord-0000{}-of-00002", "train-0000{}-of-00002", "{}.tfrecord"])
def test_records_are_known_by_their_content_whatever_their_files_are_called(tmp_path, name):
    (tmp_path / "in").mkdir()
    for number in range(2):
        write_records(tmp_path / "in" / name.format(number), 3, 3 * number)
    for source in ("in", "in/" + name.format(0)):
        packed(tmp_path / source, tmp_path / source.replace("/", "-") / "out")
    expected = {str(row): {"image.encoded": PICTURE + b"%d" % row, "label": row} for row in range(6)}
    found = samples_read(tmp_path / "in/out") if (tmp_path / "in/out").exists() else samples_read(tmp_path / "in-out")
    assert {
        key: {name: one for name, one in fields.items() if "npy" not in name} for key, fields in found.items()
    } == expected


def test_numbered_files_that_are_no_records_stay_files(tmp_path):
    write(tmp_path / "in", **{"page-00001-of-00002": b"one", "page-00002-of-00002": b"two"})
    packed(tmp_path / "in", tmp_path / "out")
    assert len(samples_read(tmp_path / "out")) == 2


def compressed_tar(count):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"{number}.txt")
            archive.addfile(member, io.BytesIO(b""))
    return content.getvalue()


def gzip_records(tmp_path):
    write_records(tmp_path / "plain.tfrecord")
    return gzip.compress((tmp_path / "plain.tfrecord").read_bytes())


@pytest.mark.parametrize(
    ("names", "said", "advice"),
    [
        (["a-0.tar.gz", "a-1.tar.gz", "README.md"], "2 compressed tar files", "--index-only"),
        (["a-0.tgz", "a-1.tar.zst"], "2 compressed tar files", "--index-only"),
        (["a-0.tar", "in/a-1.tar"], "2 tar files", "--index-only"),
        (["a.zip"], "1 zip file", "unzip"),
        (["x.tfrecord.gz"], "1 gzip TFRecord file", "gunzip"),
        (["train-00000-of-00001"], "1 gzip TFRecord file", "gunzip"),
        (["a.parquet", "b.arrow"], "1 Arrow file (b.arrow); 1 Parquet file (a.parquet)", "--include"),
        (["a.parquet", "b.parquet", "a.jpg"], "2 Parquet files (a.parquet, b.parquet); 1 other file", "--exclude"),
    ],
)
def test_what_holds_many_samples_and_is_not_read_is_refused_with_what_to_do(tmp_path, names, said, advice):
    content = gzip_records(tmp_path) if "x.tfrecord.gz" in names or "train" in names[0] else compressed_tar(2)
    for name in names:
        write((tmp_path / "in" / name).parent, **{name.rpartition("/")[2]: content})
    with pytest.raises(UsageError, match="each hold many samples") as raised:
        packed(tmp_path / "in", tmp_path / "out")
    assert said in raised.value.given
    assert advice in raised.value.next
    with pytest.raises(DataError) as raised_by_reading:
        open_source(str(tmp_path / "in"))
    if names[0] != "a-0.tar":  # shards without an index are told in other words
        assert said in raised_by_reading.value.given
    assert "cordee data pack" in raised_by_reading.value.next


def test_files_that_are_one_sample_each_whatever_they_hold_are_named(tmp_path):
    write(tmp_path / "in", **{f"{number}.tar.gz": compressed_tar(1) for number in range(3)})
    packed(tmp_path / "in", tmp_path / "out", include=["*.tar.gz"])
    assert list(samples_read(tmp_path / "out")) == ["0", "1", "2"]
    with pytest.warns(UserWarning, match="taken as one sample"):
        assert list(samples_read(tmp_path / "in", include=["*.tar.gz"])) == ["0", "1", "2"]


def test_one_among_many_other_files_is_packed_with_a_note(tmp_path):
    from cordee.systems.data.pack.build import plan_of

    pictures = {f"{number}.jpg": PICTURE * 100 for number in range(9)}
    write(tmp_path / "in", **{**pictures, "more.zip": b"PK"})
    assert any("more.zip" in note for note in plan_of(str(tmp_path / "in")).notes)
    with pytest.warns(UserWarning, match=r"1 zip file \(more\.zip\)"):
        assert open_source(str(tmp_path / "in")).size == 10


def test_an_image_holds_files_as_they_are(hub, tmp_path):
    assert packed(hub, tmp_path / "hub.squashfs", target="squashfs").samples == 5


def test_a_compressed_file_of_records_is_not_called_damaged(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(gzip_records(tmp_path))
    with pytest.raises(DataError, match="compressed by gzip"):
        packed(tmp_path / "x.tfrecord", tmp_path / "out")


def test_a_table_in_an_archive_is_refused(tmp_path):
    pyarrow.parquet.write_table(table(0), tmp_path / "a.parquet")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.parquet", "a.parquet")
    with pytest.raises(UsageError, match="each hold many samples"):
        packed(tmp_path / "a.tar", tmp_path / "out")


def test_texts_as_classes_are_those_of_a_csv(tmp_path):
    data = {"image": [PICTURE + b"%d" % row for row in range(3)], "label": ["wren", None, "robin"]}
    pyarrow.parquet.write_table(pyarrow.table(data), tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out")
    source = open_source(str(tmp_path / "out"))
    assert source.classes == ("robin", "wren")
    assert [fields.get("label") for fields in samples_read(tmp_path / "out").values()] == [1, None, 0]


def test_numbers_that_json_has_not_are_texts_in_it(tmp_path):
    data = {"x": [1.0, float("nan"), float("-inf")], "y": [[1], None, [2]]}
    pyarrow.parquet.write_table(pyarrow.table(data), tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out")

    def refused(name):
        raise AssertionError(name)

    found = [json.loads(fields["json"], parse_constant=refused) for fields in samples_read(tmp_path / "out").values()]
    assert found == [{"x": 1.0, "y": [1]}, {"x": "NaN", "y": None}, {"x": "-Infinity", "y": [2]}]
