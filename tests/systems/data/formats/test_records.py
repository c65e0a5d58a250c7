"""TFRecord files as a source of packing."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy
import pytest

from cordee.core.errors import CorruptDataError
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.unpack import unpack
from support.data.shards import packed, samples_read


@pytest.fixture(scope="module", autouse=True)
def _tfrecord():
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global tfrecord
    import tfrecord


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
    pack(plan_of(str(tmp_path / "x.tfrecord")), str(tmp_path / "out"), PackOptions(shard_bytes=5000, workers=2))
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


def test_features_with_slashes_and_dots_in_their_names_are_fields_of_one_sample(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "imagenet.tfrecord"))
    boxes = {f"image/object/bbox/{name}": ([0.5, number], "float") for number, name in enumerate(["xmin", "ymin"])}
    more = {f"image/extra.{number}": (b"%d" % number, "byte") for number in range(40)}
    for number in range(5):
        record = {
            "image/encoded": (b"\xff\xd8\xff%d" % number, "byte"),
            "image/class/label": (number + 7, "int"),
            "image/filename": (b"n0.%d.JPEG" % number, "byte"),
            "A": (b"upper", "byte"),
            "a": (b"lower", "byte"),
        }
        writer.write({**record, **boxes, **more})
    writer.close()
    packed(tmp_path / "imagenet.tfrecord", tmp_path / "out")
    found = samples_read(tmp_path / "out")
    assert list(found) == ["0", "1", "2", "3", "4"]
    sample = found["3"]
    assert (sample["image.encoded"], sample["image.filename"], sample["label"]) == (b"\xff\xd8\xff3", b"n0.3.JPEG", 10)
    assert numpy.load(io.BytesIO(sample["image.class.label.npy"])).tolist() == [10]
    assert numpy.load(io.BytesIO(sample["image.object.bbox.ymin.npy"])).tolist() == [0.5, 1.0]
    assert [sample[f"image.extra.{number}"] for number in range(40)] == [b"%d" % number for number in range(40)]
    assert {sample["a"], sample["a~2"]} == {b"upper", b"lower"}


def test_keys_with_dots_name_samples_and_break_none_apart(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "x.tfrecord"))
    for number in range(3):
        writer.write({"__key__": (b"a/v1.%d" % number, "byte"), "x": (b"%d" % number, "byte"), "y": (b"z", "byte")})
    writer.close()
    packed(tmp_path / "x.tfrecord", tmp_path / "out")
    assert samples_read(tmp_path / "out") == {f"a/v1_{number}": {"x": b"%d" % number, "y": b"z"} for number in range(3)}
