"""litdata: chunks of 64 MB, its own shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata


def sample_of(entry: tuple[str, int]) -> dict[str, Any]:
    """Return a sample as litdata stores it."""
    with open(entry[0], "rb") as file:
        return {"data": file.read(), "label": entry[1]}


def pack(files: list[tuple[str, int]], into: Path) -> None:
    """Write chunks with one worker."""
    litdata.optimize(sample_of, files, str(into / "chunks"), chunk_bytes="64MB", num_workers=1, verbose=False)


def opened(into: Path) -> Any:
    """Return the folder: the order is drawn when the set is made."""
    return str(into / "chunks")


def read(source: Any, seed: int) -> Iterator[bytes]:
    """Give the samples."""
    for sample in litdata.StreamingDataset(source, shuffle=True, seed=seed):
        yield sample["data"]
