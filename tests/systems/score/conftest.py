"""Hand-made recordings and traces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cordee.runs.folder import RunFolder
from cordee.systems.score.trace.model import HostSamples, ScoredDevice, ScoredJob, ScoreTrace
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.recording import RecordedRank, Recorder, claim_number, write_recorder

T0 = 1_700_000_000.0
NAN = float("nan")
H100 = "NVIDIA H100 PCIe"  # of which no caps were measured


def write_group(
    folder: RunFolder,
    number: int,
    node: str,
    group: str,
    columns: dict[str, Any],
    devices: list[Any],
    *,
    facts: dict[str, dict[str, Any]] | None = None,
    missing: dict[str, str] | None = None,
    start: float = T0,
    cadence: float = 1.0,
) -> None:
    """Append samples: `columns` are by metric, [time] or [time, device]."""
    tables = [np.asarray(values, dtype=float) for values in columns.values()]
    tables = [np.repeat(table[:, None], len(devices), 1) if table.ndim == 1 else table for table in tables]
    values = np.stack(tables, axis=2)
    schema, encoded = encode_schema(node, group, cadence, devices, [described(name, "test") for name in columns])
    records = [encoded]
    if facts is not None:
        records.append(encode_facts(node, group, start, facts, missing or {}))
    records += [encode_grid(schema, start + cadence * at, row.ravel().tolist()) for at, row in enumerate(values)]
    writer = BlockLogWriter(folder.telemetry, number)
    writer.append(b"".join(records))
    assert writer.close()


def write_logged(folder: RunFolder, number: int, rank: int, **columns: Any) -> None:
    """Append what a rank logged once a second, as steps from 0."""
    rows = zip(*columns.values(), strict=True)
    events = [(at, T0 + at, at, dict(zip(columns, row, strict=True))) for at, row in enumerate(rows)]
    writer = BlockLogWriter(folder.telemetry, number)
    writer.append(encode_events("n0", rank, 1, 0, events))
    assert writer.close()


def recording(tmp_path: Path, *ranks: RecordedRank, node: str = "n0", **more: Any) -> tuple[RunFolder, int]:
    """Return a recording with one more sampler, and its number."""
    folder = RunFolder(tmp_path / "recording")
    number = claim_number(folder)
    about = {"started_at": T0, "interval_s": 1.0, "version": "0", "ended_at": T0 + 1, "heard_at": T0 + 1, **more}
    write_recorder(folder, Recorder(number, node, node, 7, ranks=list(ranks), **about))
    return folder, number


def rank(number: int = 0, **more: Any) -> RecordedRank:
    return RecordedRank(number, 40 + number, ["python", "train.py"], T0, **more)


def trace(columns: dict[str, Any], kind: Any = "gpu", **more: Any) -> ScoreTrace:
    """Return a trace of GPUs with these columns [time, device]."""
    tables = {name: np.atleast_2d(np.asarray(values, dtype=np.float32)) for name, values in columns.items()}
    length, count = next(iter(tables.values())).shape
    devices = more.pop("devices", None) or [ScoredDevice(f"GPU-{at}", "n0", at, H100, (at,)) for at in range(count)]
    job = more.pop("job", None) or ScoredJob(
        "made", started_at=T0, ended_at=T0 + length, nodes=("n0",), world_size=count
    )
    return ScoreTrace(job, kind, "synthetic", 1.0, T0 + np.arange(length), devices, tables.get, **more)


def around(columns: dict[str, Any], node_of: dict[str, str]) -> HostSamples:
    """Return what surrounds the devices, columns [time, key]."""
    tables = {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}
    return HostSamples(tuple(node_of), node_of, tables.get)


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """The functions and names of this file."""
    return SimpleNamespace(
        T0=T0,
        NAN=NAN,
        H100=H100,
        group=write_group,
        logged=write_logged,
        recording=recording,
        rank=rank,
        trace=trace,
        around=around,
    )
