"""webdataset: sequential tars, a shuffle buffer of 1,000 samples, shards in random order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset


def pack(files: list[tuple[str, int]], into: Path) -> None:
    """Write tar shards of 256 MB."""
    with webdataset.ShardWriter(f"{into}/shard-%06d.tar", maxsize=256e6, maxcount=1_000_000, verbose=0) as writer:
        for number, (path, label) in enumerate(files):
            with open(path, "rb") as file:
                writer.write({"__key__": f"{number:06d}", "bin": file.read(), "cls": label})


def opened(into: Path) -> Any:
    """Return what is iterated."""
    shards = sorted(str(path) for path in into.glob("*.tar"))
    return webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False).shuffle(1000)


def read(source: Any, seed: int) -> Iterator[bytes]:
    """Give the samples."""
    for sample in source:
        yield sample["bin"]
