"""Data sets in memory and as packed shards, for tests of `cordee.dataset`."""

from __future__ import annotations

import io
import tarfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest

from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.shards.index import INDEX_NAME, Shard, write_index


class Numbers(SampleSource):
    """Samples that are their own numbers. `fails_at` raises, `corrupt` are None when read, `damaged` fail when verified."""

    def __init__(self, size: int, name: str = "numbers", **faults: Any) -> None:
        self.name, self.size, self.identity = name, size, f"{name}-{size}"
        self.counts = ReadCounts()
        self.fails_at, self.corrupt = faults.get("fails_at", ()), faults.get("corrupt", ())
        self.damaged = faults.get("damaged", ())
        self.slow_s = faults.get("slow_s", 0.0)
        self.expected: list[int] = []
        self.reads: list[int] = []
        self.closed = False

    def read(self, samples: Any) -> list[Any]:
        found: list[Any] = []
        time.sleep(self.slow_s)
        self.reads.append(len(samples))
        for sample in samples.tolist():
            if sample in self.fails_at:
                raise DataError("storage failed", given=self.describe(sample))
            if sample in self.corrupt:
                self.counts.skipped += 1
                found.append(None)
                continue
            found.append({"key": f"{self.name}/{sample}", "data": b"%d" % sample, "label": sample})
        self.counts.samples += len(samples)
        self.counts.request(len(samples) * 8)
        return found

    def expect(self, samples: Any) -> None:
        self.expected += samples.tolist()

    def verify(self, sample: int, values: Any) -> None:
        if sample in self.damaged:
            raise CorruptDataError("a sample is damaged", given=self.describe(sample))

    def describe(self, sample: int) -> str:
        return f"{self.name}/{sample}"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def numbers() -> type[Numbers]:
    return Numbers


def write_packed(folder: Path, samples: int, per_shard: int = 40, field: str = "txt") -> Path:
    """Write a packed data set as `cordee data pack` does: shards by tarfile and their index; a sample holds its number."""
    folder.mkdir(parents=True)
    columns: dict[str, list[Any]] = {name: [] for name in ("shard", "offset", "length", "crc32", "label", "key_end")}
    keys, shards = b"", []
    for number, first in enumerate(range(0, samples, per_shard)):
        name = f"corpus-{number:06d}.tar"
        with tarfile.open(folder / name, "w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in range(first, min(samples, first + per_shard)):
                key, data = f"s{sample:05d}", b"%d" % sample
                entry = tarfile.TarInfo(f"{key}.{field}")
                entry.size = len(data)
                columns["offset"].append([tar.offset + tarfile.BLOCKSIZE])
                tar.addfile(entry, io.BytesIO(data))
                keys += key.encode()
                row = {"shard": number, "length": [len(data)], "crc32": [zlib.crc32(data)], "label": sample}
                for column, value in {**row, "key_end": len(keys)}.items():
                    columns[column].append(value)
        shards.append(Shard(name, (folder / name).stat().st_size, min(per_shard, samples - first)))
    arrays = {name: numpy.array(values) for name, values in columns.items()}
    arrays["keys"] = numpy.frombuffer(keys, "u1")
    write_index(folder / INDEX_NAME, name="corpus", fields=[field], classes=[], shards=shards, columns=arrays)
    return folder


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A packed data set of 203 samples in six shards."""
    return write_packed(tmp_path / "packed", 203)
