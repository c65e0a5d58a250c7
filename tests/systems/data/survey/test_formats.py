"""Formats are told by content and structure, of files that the formats' own libraries wrote."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy
import pytest

from cordee.systems.data.survey.magic import FIRST_BYTES, format_of, holds_samples
from cordee.systems.data.survey.path_survey import survey


def told(folder: Path) -> dict[str, tuple[int, str]]:
    return {each.name: (each.files, each.by) for each in survey(str(folder)).formats}


def write_tar(path: Path, members: list[str], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:
        for name in members:
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))


def test_images_are_told_by_their_bytes_even_with_other_names(tree):
    from PIL import Image

    for number in range(3):
        Image.new("RGB", (8, 8)).save(tree / f"{number}.jpg")
        Image.new("RGB", (8, 8)).save(tree / f"{number}.data", format="PNG")
        Image.new("RGB", (8, 8)).save(tree / f"{number}.webp")
    assert told(tree) == {"image": (9, "content")}


def test_arrays_and_archives(tree):
    numpy.save(tree / "a.npy", numpy.zeros(3))
    numpy.savez(tree / "b.npz", x=numpy.zeros(3))
    with zipfile.ZipFile(tree / "c.zip", "w") as archive:
        archive.writestr("a/b.txt", "x")
    write_tar(tree / "d.tar", ["a/1.jpg", "a/2.jpg", "a/3.jpg"])
    write_tar(tree / "e.tar.gz", ["a/1.jpg"], "w:gz")
    assert told(tree) == dict.fromkeys(("npy", "npz", "zip", "tar", "compressed"), (1, "content"))


def test_webdataset_shards_are_told_from_other_tars(tree):
    write_tar(tree / "train-000000.tar", ["a/1.cls", "a/1.jpg", "a/2.cls", "a/2.jpg"])
    assert told(tree) == {"webdataset": (1, "content")}
    beginning = (tree / "train-000000.tar").read_bytes()[:2048]
    assert holds_samples(io.BytesIO(beginning))
    for members in (["a/1.jpg", "a/2.jpg"], ["README"], [], ["a.jpg", "b.jpg", "a.cls"]):
        write_tar(tree / "other.tar", members)
        with open(tree / "other.tar", "rb") as tar:
            assert not holds_samples(tar)


def test_tables_and_records(tree):
    import pyarrow
    import pyarrow.parquet
    import tfrecord

    table = pyarrow.table({"a": [1, 2]})
    pyarrow.parquet.write_table(table, tree / "a.parquet")
    with pyarrow.ipc.new_file(tree / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    writer = tfrecord.TFRecordWriter(str(tree / "train-00000-of-00001"))
    writer.write({"x": (1, "int")})
    writer.close()
    (tree / "c.jsonl").write_text('{"a": 1}\n')
    (tree / "d.csv").write_text("a,b\n1,ü\n")
    assert told(tree) == {
        "parquet": (1, "content"),
        "arrow": (1, "content"),
        "tfrecord": (1, "content"),
        "text": (2, "content"),
    }


def test_megatron_pairs(tree):
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2)
    (tree / "corpus.idx").write_bytes(header)
    (tree / "corpus.bin").write_bytes(b"\xff\xfe" * 50)
    assert told(tree) == {"megatron": (2, "content")}


def test_squashfs_and_what_nobody_knows(tree):
    (tree / "env.sqsh").write_bytes(b"hsqs" + bytes(100))
    (tree / "weights.xyz").write_bytes(bytes(range(256)))
    assert told(tree) == {"squashfs": (1, "content"), "other": (1, "name")}


def test_a_python_environment_is_one_thing(tree):
    (tree / "venv" / "lib" / "site-packages").mkdir(parents=True)
    (tree / "venv" / "pyvenv.cfg").write_text("home = /usr\n")
    for number in range(5):
        (tree / "venv" / "lib" / "site-packages" / f"{number}.py").write_text("x = 1\n")
    (found,) = survey(str(tree)).formats
    assert (found.name, found.files, found.by) == ("python environment", 6, "structure")
    assert found.examples == (str(tree / "venv"),)


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_stores_are_told_by_structure_and_their_chunks_are_read(tree, version):
    import zarr

    group = zarr.open_group(tree / "store.zarr", mode="w", zarr_format=version)
    good = group.create_array("good", shape=(64, 512, 512), chunks=(4, 512, 512), dtype="float32")
    good[0] = 1.0
    group.create_array("bad", shape=(20_000, 512), chunks=(10, 16), dtype="float32")[0] = 1.0
    found = survey(str(tree))
    assert found.formats[0].name == "zarr"
    assert found.formats[0].by == "structure"
    lies = {each.array: each for each in found.chunks}
    assert lies["good"].fits
    assert lies["good"].chunk_bytes == 4 * 512 * 512 * 4
    assert not lies["bad"].fits
    assert "small reads" in lies["bad"].reason


def test_a_sharded_zarr_is_judged_by_what_is_read_at_once(tree):
    import zarr

    zarr.create_array(tree / "a.zarr", shape=(20_000, 512), shards=(1000, 512), chunks=(10, 512), dtype="float32")
    (lies,) = survey(str(tree)).chunks
    assert lies.chunk_shape == (10, 512)


def test_hdf5_chunks_that_fit_badly_are_said_with_what_fits(tree):
    import h5py

    with h5py.File(tree / "a.h5", "w") as file:
        file.create_dataset("whole", shape=(100, 512, 512), dtype="f4")
        file.create_dataset("pieces", shape=(1000, 512, 512), chunks=(1000, 8, 8), dtype="f4")
        file.create_dataset("much", shape=(100_000, 512), chunks=(100_000, 512), dtype="f4")
    lies = {each.array: each for each in survey(str(tree)).chunks}
    assert lies["/whole"].fits
    assert lies["/whole"].chunk_bytes is None
    assert lies["/pieces"].reason == "one record of 1.05 MB lies in 4,096 chunks"
    assert lies["/much"].reason == "one record of 2.05 kB costs reading 205 MB"


def test_a_damaged_hdf5_file_is_said_to_be_unknown(tree):
    (tree / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(500))
    found = survey(str(tree))
    assert found.chunks == ()
    assert "cannot be read as HDF5" in found.chunks_unknown


def test_packed_data_is_known_by_its_index(tree):
    from cordee.systems.data.node.shards.index import INDEX_NAME, Shard, write_index

    write_tar(tree / "train-000000.tar", ["1.jpg"])
    columns = {
        "shard": [0],
        "offset": [[512]],
        "length": [[3]],
        "crc32": [[0]],
        "key_end": [1],
        "keys": numpy.frombuffer(b"1", "u1"),
    }
    shards = [Shard("train-000000.tar", 10240, 1)]
    write_index(tree / INDEX_NAME, name="train", fields=["jpg"], classes=[], shards=shards, columns=columns)
    assert told(tree)["packed"][1] in ("content", "structure")
    assert survey(str(tree)).share("packed") == pytest.approx(1.0)


def test_text_is_no_binary_and_a_cut_letter_is_no_fault():
    assert format_of("ü".encode() * FIRST_BYTES, 2 * FIRST_BYTES) == "text"
    assert format_of(("ü" * FIRST_BYTES).encode()[: FIRST_BYTES - 1] + b"\xc3", 10**6) == "text"
    assert format_of(b"", 0) is None
    assert format_of(bytes(100), 100) is None
