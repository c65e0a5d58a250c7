"""Decoders by the name of a field."""

from __future__ import annotations

import io
import json
import sys

import numpy
import pytest
from PIL import Image

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.batches.decoders import automatic, by_name


def encoded(pixels, kind, mode=None):
    out = io.BytesIO()
    Image.fromarray(pixels, mode).save(out, kind)
    return out.getvalue()


def test_pictures_become_arrays_of_red_green_blue():
    pixels = numpy.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=numpy.uint8)
    found = automatic("left.PNG")(encoded(pixels, "PNG"))
    assert (found == pixels).all()
    assert found.dtype == numpy.uint8
    assert automatic("jpg")(encoded(pixels, "JPEG")).shape == (5, 7, 3)
    grey = automatic("png")(encoded(pixels[:, :, 0], "PNG"))
    assert (grey == pixels[:, :, :1]).all()
    assert grey.shape == (5, 7, 3)


def test_deep_pictures_keep_their_values():
    pixels = numpy.arange(35, dtype=numpy.uint16).reshape(5, 7) * 1000
    assert (automatic("depth.png")(encoded(pixels, "PNG")) == pixels).all()


def test_numbers_texts_and_arrays_are_read():
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    one, several = io.BytesIO(), io.BytesIO()
    numpy.save(one, array)
    numpy.savez(several, a=array)
    assert automatic("cls")(b" 17\n") == 17
    assert automatic("txt")("ä".encode()) == "ä"
    assert automatic("json")(json.dumps({"x": [1]}).encode()) == {"x": [1]}
    assert automatic("jsonl")(b'{"x": 1}\n\n2\n') == [{"x": 1}, 2]
    assert (automatic("npy")(one.getvalue()) == array).all()
    assert (automatic("npz")(several.getvalue())["a"] == array).all()


def test_arrays_of_objects_are_not_read():
    out = io.BytesIO()
    numpy.save(out, numpy.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        automatic("npy")(out.getvalue())


def test_what_nobody_knows_stays_bytes():
    assert automatic("bin") is None
    assert set(by_name(["jpg", "bin", "cls"])) == {"jpg", "cls"}


def test_a_machine_without_decoders_of_pictures_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.io", None)
    with pytest.raises(UsageError, match="Pillow or torchvision"):
        automatic("jpg")(b"")
