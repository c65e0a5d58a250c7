"""Hugging Face datasets: one Arrow file, mapped; a global shuffle; row after row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets.arrow_writer import ArrowWriter


def pack(files: list[tuple[str, int]], into: Path) -> None:
    """Write an Arrow stream as `Dataset.from_generator` does."""
    features = datasets.Features({"data": datasets.Value("binary"), "label": datasets.Value("int64")})
    with ArrowWriter(path=str(into / "data.arrow"), features=features, writer_batch_size=1000) as writer:
        for path, label in files:
            with open(path, "rb") as file:
                writer.write({"data": file.read(), "label": label})
        writer.finalize()


def opened(into: Path) -> Any:
    """Return the mapped data set."""
    datasets.disable_progress_bars()
    return datasets.Dataset.from_file(str(into / "data.arrow"))


def read(source: Any, seed: int) -> Iterator[bytes]:
    """Give the samples."""
    for row in source.shuffle(seed=seed, keep_in_memory=True):
        yield row["data"]
