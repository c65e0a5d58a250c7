from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.score.cli import export
from cordee.systems.score.exchange import table as tables
from cordee.systems.score.exchange.table import open_table
from cordee.systems.score.exchange.tablefiles import export_table
from cordee.telemetry.store.reader import open_run
from support.recordings.recording import STARTED_AT, made_node, write_recording

GPUS, SECONDS = 2, 120


@pytest.fixture(scope="module", autouse=True)
def _pandas():
    """pandas, where these tests run: not in every process that only collects them."""
    global pandas, pyarrow
    import pandas
    import pyarrow.parquet


def recording(folder: Path) -> Path:
    """Two nodes of two GPUs; the last value of the first GPU is missing, and so is all of the second minute of the second."""
    nodes = []
    for index in range(2):
        sm = np.full((SECONDS, GPUS), 0.25 * (index + 1), dtype=np.float64)
        sm[60:, 1] = np.nan
        dram = np.tile(np.arange(SECONDS)[:, None] / 1000, (1, GPUS))
        dram[-1, 0] = np.nan
        dram[60:, 1] = np.nan
        nodes.append(made_node(index, GPUS, {"gpu_sm_ratio": sm, "gpu_dram_ratio": dram}))
    write_recording(folder, nodes)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return recording(tmp_path_factory.mktemp("made") / "recording")


def exported(made: Path, out: Path, kind: str, shape: str = "wide", **options) -> int:
    given = {"group": None, "metrics": None, "every_s": None, **options}
    return export_table(open_table(open_run(made), **given), kind, out, shape)


def test_parquet_opens_in_pandas_and_xarray_with_times_in_utc(made, tmp_path):
    rows = exported(made, tmp_path / "t.parquet", "parquet")
    frame = pandas.read_parquet(tmp_path / "t.parquet")
    assert rows == len(frame) == 2 * (SECONDS + 60)
    assert str(frame["time"].dt.tz) == "UTC"
    assert frame["time"].iloc[0].timestamp() == STARTED_AT
    assert sorted(frame["node"].unique()) == sorted(open_run(made).facts("gpu"))
    cube = frame.drop(columns="node").set_index(["time", "device"])["gpu_sm_ratio"].to_xarray()
    assert cube.shape == (SECONDS, 4)
    assert float(cube.max()) == 0.5
    assert np.isnan(cube.values[-1]).sum() == 2
    about = json.loads(pyarrow.parquet.read_schema(tmp_path / "t.parquet").metadata[b"cordee"])
    assert about["units"] == {"gpu_sm_ratio": "ratio", "gpu_dram_ratio": "ratio"}
    assert about["sources"]["gpu_sm_ratio"] == "synthetic"


def test_a_recording_opens_in_xarray_by_itself(made):
    data = open_run(made).to_xarray("gpu")
    assert dict(data.sizes) == {"time": SECONDS, "device": 4}
    assert "ratio" in data["gpu_sm_ratio"].attrs.values()


def test_pieces_of_any_size_are_the_same_table(made, tmp_path, monkeypatch):
    exported(made, tmp_path / "whole.csv", "csv", every_s=60.0)
    for values in (1, 500):
        monkeypatch.setattr(tables, "_VALUES_AT_ONCE", values)
        exported(made, tmp_path / f"{values}.csv", "csv", every_s=60.0)
        assert (tmp_path / f"{values}.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_csv_leaves_missing_values_empty_and_bins_are_means_of_what_was_measured(made, tmp_path):
    exported(made, tmp_path / "t.csv", "csv", metrics=["gpu_dram_ratio", "gpu_sm_ratio"])
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert list(rows[0]) == ["time", "node", "device", "gpu_dram_ratio", "gpu_sm_ratio"]
    assert rows[0]["time"] == "2026-09-21T14:13:20.000Z"
    last = [row for row in rows if row["time"] == rows[-1]["time"]]
    assert [row["gpu_dram_ratio"] for row in last] == ["", ""]
    exported(made, tmp_path / "m.csv", "csv", metrics=["gpu_dram_ratio"], every_s=40.0)
    bins = list(csv.DictReader((tmp_path / "m.csv").open()))
    first = [row for row in bins if row["device"] == rows[0]["device"]]
    assert len(first) in (3, 4)
    total = sum(float(row["gpu_dram_ratio"]) for row in first) / len(first)
    assert total == pytest.approx(0.0595, abs=0.01)


def test_long_tables_have_a_row_per_value_in_all_formats(made, tmp_path):
    counts = {kind: exported(made, tmp_path / f"t.{kind}", kind, "long") for kind in ("parquet", "csv", "json")}
    assert len(set(counts.values())) == 1
    assert counts["csv"] == 2 * (2 * (SECONDS + 60)) - 2
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["columns"] == ["time", "node", "device", "metric", "value", "unit"]
    assert len(document["rows"]) == counts["json"]
    frame = pandas.read_parquet(tmp_path / "t.parquet")
    assert set(frame["metric"]) == {"gpu_sm_ratio", "gpu_dram_ratio"}
    assert frame["value"].notna().all()


def test_other_groups_can_be_named_and_wrong_wishes_are_told_what_there_is(made, tmp_path):
    run = open_run(made)
    for wish, words in (
        ({"group": "disk"}, "gpu"),
        ({"metrics": ["loss"]}, "gpu_sm_ratio"),
        ({"every_s": 1.5}, "a multiple of 1 s"),
    ):
        with pytest.raises(UsageError) as raised:
            open_table(run, **{"group": None, "metrics": None, "every_s": None, **wish})
        assert words in str(raised.value)
    exported(made, tmp_path / "t.csv", "csv")
    with pytest.raises(UsageError, match="already"):
        exported(made, tmp_path / "t.csv", "csv")
    (tmp_path / "empty" / "recorders").mkdir(parents=True)
    with pytest.raises(UsageError, match="not one sample"):
        open_table(open_run(tmp_path / "empty"), None, None, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "t.csv"]


def test_without_pyarrow_parquet_says_what_to_install(made, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pip install"):
        exported(made, tmp_path / "t.parquet", "parquet")


def test_the_command_writes_and_says_what(made, tmp_path):
    out = tmp_path / "t.json"
    words = [str(made), str(out), "--to", "json", "--every", "60s", "--metrics", "gpu_sm_ratio", "--json"]
    done = CliRunner().invoke(export.command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert json.loads(done.output)["rows"] == len(json.loads(out.read_text())["rows"])
