"""TFRecord files as a source of packing."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy
import pytest
import tfrecord

from cordee.data.pack._base import Options
from cordee.data.pack.packing import pack, plan_of
from cordee.data.pack.unpack import unpack
from cordee.data.shards.index import open_index
from cordee.errors import CorruptDataError


def test_records_of_the_tfrecord_library_become_samples(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "x.tfrecord"))
    pictures = [os.urandom(100 + number) for number in range(12)]
    for number, picture in enumerate(pictures):
        writer.write(
            {
                "image": (picture, "byte"),
                "label": (number % 3, "int"),
                "box": ([0.5 * number, 2.0], "float"),
                "ids": ([-number, 1 << 40], "int"),
            }
        )
    writer.close()
    pack(plan_of(str(tmp_path / "x.tfrecord")), str(tmp_path / "out"), Options(shard_bytes=5000, workers=2))
    index = open_index(tmp_path / "out")
    assert index.columns["label"].tolist() == [number % 3 for number in range(12)]
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    for number, picture in enumerate(pictures):
        assert (tmp_path / "back" / f"{number:02}.image").read_bytes() == picture
        values = {
            name: numpy.load(io.BytesIO((tmp_path / "back" / f"{number:02}.{name}.npy").read_bytes()))
            for name in ("box", "ids")
        }
        assert values["box"].tolist() == [0.5 * number, 2.0]
        assert values["ids"].tolist() == [-number, 1 << 40]


def test_what_was_packed_as_tfrecord_is_packed_again_with_its_keys(folder: Path, tmp_path: Path) -> None:
    pack(plan_of(str(folder)), str(tmp_path / "records"), Options(shard_bytes=12_000), target="tfrecord")
    pack(plan_of(str(tmp_path / "records")), str(tmp_path / "out"), Options())
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert (tmp_path / "back" / "dog" / "004.jpg").read_bytes() == (folder / "dog" / "004.jpg").read_bytes()
    assert open_index(tmp_path / "out").samples == open_index(tmp_path / "records").samples


def test_a_damaged_or_foreign_record_is_named(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "x.tfrecord"))
    for _ in range(3):
        writer.write({"image": (b"x" * 50, "byte")})
    writer.close()
    content = bytearray((tmp_path / "x.tfrecord").read_bytes())
    size = len(content) // 3
    content[size + 20] ^= 1
    (tmp_path / "x.tfrecord").write_bytes(content)
    with pytest.raises(CorruptDataError, match="damaged or cut off") as caught:
        plan_of(str(tmp_path / "x.tfrecord"))
    assert f"byte {size}" in str(caught.value.given)
    (tmp_path / "x.tfrecord").write_bytes(content[: size - 5])
    with pytest.raises(CorruptDataError, match="damaged or cut off"):
        plan_of(str(tmp_path / "x.tfrecord"))
