"""Packed data sets for the tests of reading, made by Python's tarfile."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from cordee.systems.data.node.shards.index import INDEX_NAME, NO_LABEL, Shard, write_index


def write_packed(
    folder: Path,
    samples: list[dict[str, Any]],
    *,
    shard_samples: int = 10,
    fields: list[str] | None = None,
    root: str = ".",
    tar_format: int = tarfile.PAX_FORMAT,
) -> Path:
    """Pack samples ({"key": str, "label": int or absent, field: bytes}) and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = fields or sorted({name for sample in samples for name in sample} - {"key", "label"})
    columns: dict[str, list[Any]] = {name: [] for name in ("shard", "offset", "length", "crc32", "label", "key_end")}
    shards, keys = [], b""
    for number, begin in enumerate(range(0, len(samples), shard_samples)):
        path = folder / f"set-{number:06d}.tar"
        some = samples[begin : begin + shard_samples]
        with tarfile.open(path, "w", format=tar_format) as archive:
            for sample in some:
                for name in names:
                    if name in sample:
                        member = tarfile.TarInfo(f"{sample['key']}.{name}")
                        member.size = len(sample[name])
                        archive.addfile(member, io.BytesIO(sample[name]))
        with tarfile.open(path) as archive:
            offsets = {member.name: member.offset_data for member in archive}
        for sample in some:
            there = [sample.get(name) for name in names]
            columns["shard"].append(number)
            columns["offset"].append([offsets.get(f"{sample['key']}.{name}", 0) for name in names])
            columns["length"].append([-1 if data is None else len(data) for data in there])
            columns["crc32"].append([0 if data is None else zlib.crc32(data) for data in there])
            columns["label"].append(sample.get("label", NO_LABEL))
            keys += sample["key"].encode("utf-8", "surrogateescape")
            columns["key_end"].append(len(keys))
        shards.append(Shard(path.name, path.stat().st_size, len(some)))
    if all(label == NO_LABEL for label in columns["label"]):
        del columns["label"]
    arrays = {name: numpy.array(values) for name, values in columns.items()}
    for name in ("offset", "length", "crc32"):
        arrays[name] = arrays[name].reshape(len(samples), len(names))
    arrays["keys"] = numpy.frombuffer(keys, "u1")
    write_index(folder / INDEX_NAME, name="set", fields=names, classes=[], shards=shards, columns=arrays, root=root)
    return folder


def make_samples(count: int, size: int = 3000, seed: int = 0) -> list[dict[str, Any]]:
    """Return samples with a picture and a text each, and a label."""
    drawn = numpy.random.default_rng(seed)
    return [
        {
            "key": f"class-{number % 3}/{number:06d}",
            "label": number % 3,
            "jpg": drawn.bytes(int(drawn.integers(0, 2 * size))),
            "txt": f"sample {number}".encode(),
        }
        for number in range(count)
    ]


@pytest.fixture
def pack() -> Callable[..., Path]:
    return write_packed


@pytest.fixture
def make() -> Callable[..., list[dict[str, Any]]]:
    return make_samples
