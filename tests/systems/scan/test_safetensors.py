"""Headers of safetensors are judged as the library `safetensors` judges them."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.inspection import Inspection
from cordee.systems.scan.node.source import BytesSource

SAFETENSOR = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
HEADERS: dict[str, Any] = {
    "with texts": {"__metadata__": {"format": "pt"}, "a": SAFETENSOR},
    "with nothing": {"__metadata__": None, "a": SAFETENSOR},
    "with a field more": {"a": {**SAFETENSOR, "more": 1}},
    "of half bytes": {"a": {**SAFETENSOR, "dtype": "F4", "shape": [8]}},
    "of three quarters": {"a": {**SAFETENSOR, "dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}, "b": {**SAFETENSOR, "shape": [1], "data_offsets": [3, 4]}},
    "a scalar": {"a": {**SAFETENSOR, "dtype": "F32", "shape": []}},
    "empty ones": {"a": SAFETENSOR, "b": {**SAFETENSOR, "shape": [0, 1 << 63], "data_offsets": [4, 4]}},
    "in another order": {"b": {**SAFETENSOR, "shape": [1], "data_offsets": [3, 4]}, "a": {**SAFETENSOR, "shape": [3], "data_offsets": [0, 3]}},
    "with a number": {"__metadata__": {"step": 0}, "a": SAFETENSOR},
    "with null": {"__metadata__": {"step": None}, "a": SAFETENSOR},
    "with a list": {"__metadata__": [], "a": SAFETENSOR},
    "named so": {"__metadata__": SAFETENSOR},
    "both": {"__metadata__": SAFETENSOR, "a": SAFETENSOR},
    "of no type": {"a": {"shape": [4], "data_offsets": [0, 4]}},
    "of another type": {"a": {**SAFETENSOR, "dtype": "u8"}},
    "less than nothing": {"a": {**SAFETENSOR, "shape": [-4]}},
    "a fraction": {"a": {**SAFETENSOR, "shape": [4.0]}},
    "a truth": {"a": {**SAFETENSOR, "shape": [4, True]}},
    "a text": {"a": {**SAFETENSOR, "shape": ["4"]}},
    "three ends": {"a": {**SAFETENSOR, "data_offsets": [0, 4, 4]}},
    "backwards": {"a": {**SAFETENSOR, "data_offsets": [4, 0]}},
    "begins late": {"a": {**SAFETENSOR, "shape": [3], "data_offsets": [1, 4]}},
    "twice the same": {"a": SAFETENSOR, "b": {**SAFETENSOR, "shape": [2], "data_offsets": [2, 4]}},
    "too little": {"a": {**SAFETENSOR, "shape": [3], "data_offsets": [0, 3]}},
    "too much": {"a": {**SAFETENSOR, "shape": [5], "data_offsets": [0, 5]}},
    "uncountable": {"a": {**SAFETENSOR, "shape": [1 << 40, 1 << 40]}},
    "odd half bytes": {"a": {**SAFETENSOR, "dtype": "F4", "shape": [7]}},
    "no number": {"a": {**SAFETENSOR, "more": float("nan")}},
    "half a letter": {"\ud800": SAFETENSOR},
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_the_library_refuses_is_told_and_one_that_it_takes_is_not(look, tmp_path, name):
    library = pytest.importorskip("safetensors")
    header = json.dumps(HEADERS[name]).encode()
    content = struct.pack("<Q", len(header)) + header + b"1234"
    verdict = look(content, "file.safetensors")
    try:
        library.safe_open(str(tmp_path / "file.safetensors"), "np")
        assert verdict.verdict == "clean"
    except library.SafetensorError:
        told = "file-polyglot" if name == "too little" else "model-safetensors-header"
        assert [(sight.rule, sight.severity) for sight in verdict.sights] == [(told, "unknown")]


def test_generated_headers_are_told_where_the_library_refuses_them_and_nowhere_else(tmp_path):
    library = pytest.importorskip("safetensors")
    draw, path, seen = random.Random(7), tmp_path / "file.safetensors", {True: 0, False: 0}
    for _ in range(1500):
        content = _generated(draw)
        path.write_bytes(content)
        try:
            library.safe_open(str(path), "np")
            taken = True
        except library.SafetensorError:
            taken = False
        inspection = Inspection(PickleGlobals())
        inspection.look(BytesSource(content))
        assert taken is (not inspection.sights), (content[:300], inspection.sights)
        seen[taken] += 1
    assert min(seen.values()) > 300


def _generated(draw: random.Random) -> bytes:
    """Return a file of one to three tensors, of which half have something changed."""
    header, at = {}, 0
    for number in range(draw.randint(1, 3)):
        kind, bits = draw.choice(
            [("F32", 32), ("U8", 8), ("BF16", 16), ("F4", 4), ("F6_E2M3", 6), ("C64", 64), ("u8", 8)]
        )
        shape = [draw.choice([0, 1, 2, 3, 8]) for _ in range(draw.randint(0, 2))]
        size = bits
        for count in shape:
            size *= count
        header[f"t{number}"] = {"dtype": kind, "shape": shape, "data_offsets": [at, at := at + size // 8]}
    if draw.random() < 0.2:
        header["__metadata__"] = draw.choice([{}, {"a": "b"}, {"a": 1}, None, [], "x", {"a": None}, False, {"a": {}}])
    about = header["t0"]
    if draw.random() < 0.3:
        key = draw.choice(["dtype", "shape", "data_offsets", "more"])
        about[key] = draw.choice(
            [None, {}, [], [0], [0, 4], [1.0], [-1], [True], [0, 1 << 64], [1 << 63, 2], "F32", ["a"], [0, 1, 2]]
        )
        if draw.random() < 0.2:
            del about[key]
    if draw.random() < 0.1:
        header["t0"] = list(about.values())
    text = json.dumps(header)
    if draw.random() < 0.3:
        old, new = draw.choice([
            ('"t0"', '"t1"'), ('"t0"', '"__metadata__"'), ('"t0"', '"\\ud800"'), ('"t0"', '"t\n"'), ('"dtype"', '"dtype": "U8", "dtype"'),
            ("{", " {"), ("}}", "}} \n"), ("}}", "}}x"), ("}}", "}},"), ("0", "-0"), ("0", "00"), ("1", "1e0"), ("1", "NaN"), ("2", "2e999"),
        ])  # fmt: skip
        text = text.replace(old, new, 1)
    size = len(text) + (draw.choice([-1, 1, 8, 1 << 20]) if draw.random() < 0.1 else 0)
    return struct.pack("<Q", size) + text.encode() + bytes(at + (draw.choice([0, 1, 5]) if draw.random() < 0.1 else 0))
