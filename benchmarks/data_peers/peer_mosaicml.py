"""mosaicml-streaming: shards of 64 MB, its own shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming


def pack(files: list[tuple[str, int]], into: Path) -> None:
    """Write MDS shards."""
    columns = {"data": "bytes", "label": "int"}
    with streaming.MDSWriter(out=str(into / "mds"), columns=columns, size_limit=64 << 20) as writer:
        for path, label in files:
            with open(path, "rb") as file:
                writer.write({"data": file.read(), "label": label})


def opened(into: Path) -> Any:
    """Return the folder: the order is drawn when the set is made."""
    streaming.base.util.clean_stale_shared_memory()
    return str(into / "mds")


def read(source: Any, seed: int) -> Iterator[bytes]:
    """Give the samples."""
    for sample in streaming.StreamingDataset(local=source, shuffle=True, shuffle_seed=seed + 1, batch_size=256):
        yield sample["data"]
