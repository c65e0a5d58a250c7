"""Small data sets to measure, and what measures them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest

from cordee.systems.data.node.shards.index import INDEX_NAME, Shard, write_index

SAMPLES = 300
SHARDS = 3


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 files in three classes, 1 to 20 kB."""
    folder = tmp_path_factory.mktemp("files")
    random = numpy.random.default_rng(3)
    for number, size in enumerate(random.integers(1000, 20_000, SAMPLES).tolist()):
        path = folder / f"class-{number % 3}" / f"{number:04d}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(random.bytes(size))
    return folder


@pytest.fixture(scope="session")
def packed(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, in three shards, each sample with a second field."""
    folder = tmp_path_factory.mktemp("packed")
    paths = sorted(files.rglob("*.bin"))
    columns: dict[str, list[Any]] = {name: [] for name in ("shard", "offset", "length", "crc32", "key_end")}
    shards, keys = [], b""
    for number in range(SHARDS):
        name = f"set-{number:06d}.tar"
        some = paths[number::SHARDS]
        with tarfile.open(folder / name, "w") as archive:
            for path in some:
                for extension, data in (("bin", path.read_bytes()), ("txt", path.stem.encode())):
                    member = tarfile.TarInfo(f"{path.stem}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        with tarfile.open(folder / name) as archive:
            members = archive.getmembers()
            for first, second in zip(members[::2], members[1::2], strict=True):
                keys += first.name.partition(".")[0].encode()
                columns["shard"].append(number)
                columns["offset"].append([first.offset_data, second.offset_data])
                columns["length"].append([first.size, second.size])
                data = [archive.extractfile(member).read() for member in (first, second)]  # type: ignore[union-attr]
                columns["crc32"].append([zlib.crc32(each) for each in data])
                columns["key_end"].append(len(keys))
        shards.append(Shard(name, (folder / name).stat().st_size, len(some)))
    arrays = {name: numpy.array(values) for name, values in columns.items()}
    arrays["keys"] = numpy.frombuffer(keys, numpy.uint8)
    write_index(folder / INDEX_NAME, name="set", fields=["bin", "txt"], classes=[], shards=shards, columns=arrays)
    return folder


class Bench:
    """`cordee data bench` in one folder, with a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cordee.faces.cli", "data", "bench", *arguments]
        command += ["--seconds", "0.1", "--rounds", "2"]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the one document that it prints."""
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The command."""
    return Bench(tmp_path)
