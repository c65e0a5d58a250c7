"""A run folder with telemetry whose every value is known."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_grid, encode_schema

T0 = 1_700_000_000.0
METRICS = [{"name": f"metric_{i}_ratio", "unit": "ratio", "source": "test"} for i in range(3)]


class KnownRun:
    """Writes a run of two nodes with two ranks each; `want` is (metric, second, rank)."""

    def __init__(self, parent: Path, seconds: int = 150) -> None:
        self.folder = RunFolder.create(parent, "known-20231114T221320Z-abcd")
        self.telemetry = self.folder.telemetry
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self.seconds = seconds
        self.want = np.random.default_rng(0).random((len(METRICS), seconds, 4), dtype=np.float32)
        self.want[1, ::7, 2] = np.nan

    def record(self, second: int) -> bytes:
        """Return the records of one second: schemas, grids, events."""
        records = b""
        for node in range(2):
            ranks = [2 * node, 2 * node + 1]
            schema, encoded = encode_schema(f"local-{node}", "rank", 1.0, ranks, METRICS)
            values = self.want[:, second, ranks].T.astype("<f4")
            records += encoded + encode_grid(schema, T0 + second + 0.1, values.tobytes())
            for rank in ranks:
                event = (second * 64, T0 + second, second, {"loss": rank + 1.0 / (second + 1)})
                records += encode_events(f"local-{node}", rank, 1, 0, [event])
        return records

    def write(self, epoch: int = 1, start: int = 0, stop: int | None = None, max_bytes: int = 20_000) -> None:
        """Append the seconds [start, stop) in several parts."""
        writer = BlockLogWriter(self.telemetry, epoch, max_bytes=max_bytes)
        for second in range(start, self.seconds if stop is None else stop):
            writer.append(self.record(second))
            writer.flush()
        assert writer.close()


@pytest.fixture
def known(tmp_path: Path) -> KnownRun:
    return KnownRun(tmp_path)


@pytest.fixture
def full_disk():
    """Return a context in which no file grows beyond so many bytes: the kernel takes part of a write, then refuses."""

    @contextlib.contextmanager
    def limited(size_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
