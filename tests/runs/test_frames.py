"""A run as pandas: tidy, with units, the same whether sealed, being written or a recording; errors in words."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from cordee.core.errors import RunNotFound, UsageError
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events
from cordee.telemetry.store.reader import open_run
from support.recordings.recording import made_node, write_recording

T0 = 1_700_000_000.0


@pytest.fixture(scope="module", autouse=True)
def _pandas():
    """pandas, where these tests run: not in every process that only collects them."""
    global pandas
    import pandas


def test_samples_are_indexed_by_time_and_device_and_carry_their_units(known):
    known.write()
    frame = open_run(known.folder.root).to_pandas("rank")
    assert frame.index.names == ["time", "device"]
    assert list(frame.columns) == [f"metric_{at}_ratio" for at in range(3)]
    assert frame.attrs["units"] == dict.fromkeys(frame.columns, "ratio")
    assert frame.attrs["cadence_seconds"] == 1.0
    np.testing.assert_array_equal(frame["metric_1_ratio"].unstack("device").to_numpy(), known.want[1])
    assert str(frame.index.get_level_values("time")[0]) == "2023-11-14 22:13:20+00:00"
    assert frame["metric_1_ratio"].dtype == np.float32


def test_sealed_and_not_sealed_give_the_same_frames(known):
    known.write()
    run = open_run(known.folder.root)
    samples, events = run.to_pandas("rank"), run.to_pandas("events")
    run.seal()
    known.journal.append("ended", state="finished", exit_code=0, reason="", text="")
    run.seal()
    again = open_run(known.folder.root)
    pandas.testing.assert_frame_equal(again.to_pandas("rank"), samples)
    pandas.testing.assert_frame_equal(again.to_pandas("events"), events)


def test_a_selection_is_that_of_grids(known):
    known.write()
    run = open_run(known.folder.root)
    run.seal()
    frame = run.to_pandas("rank", "metric_2_ratio", start=T0 + 10, stop=T0 + 20)
    assert frame.shape == (40, 1)
    assert run.to_pandas("rank", every=60, statistic="max").attrs["cadence_seconds"] == 60.0


def test_what_a_running_run_writes_is_in_the_next_frame(known):
    known.write(stop=50)
    run = open_run(known.folder.root)
    assert len(run.to_pandas("events")) == 200
    known.write(epoch=2, start=50, stop=60)
    assert len(run.to_pandas("events")) == 240
    assert len(run.to_pandas("rank")) == 240


def test_events_are_a_row_for_each_value_in_the_order_of_time(known):
    known.write(stop=3)
    writer = BlockLogWriter(known.telemetry, 9)
    writer.append(encode_events("local-0", 0, 2, 0, [(0, T0 + 1.5, None, {"accuracy": 0.5, "nan": float("nan")})]))
    writer.close()
    frame = open_run(known.folder.root).to_pandas("events")
    assert list(frame.columns) == ["time", "name", "rank", "attempt", "step", "value"]
    assert frame["time"].is_monotonic_increasing
    stepless = frame[frame["name"] == "accuracy"].iloc[0]
    assert (stepless["step"] is pandas.NA, stepless["attempt"], stepless["value"]) == (True, 2, 0.5)
    assert frame["value"].isna().sum() == 1
    loss = open_run(known.folder.root).to_pandas("events", ["loss"], stop=T0 + 2)
    assert loss.groupby("step", observed=True)["value"].mean().tolist() == [2.5, 2.0]


def test_a_run_that_logged_nothing_gives_an_empty_frame_with_its_columns(tmp_path):
    folder = RunFolder.create(tmp_path, "empty-20260101T000000Z-abcd")
    frame = open_run(folder.root).to_pandas("events")
    assert list(frame.columns) == ["time", "name", "rank", "attempt", "step", "value"]
    assert len(frame) == 0


def test_a_recording_gives_frames(tmp_path):
    node = made_node(0, 2, {"gpu_sm_ratio": np.full((5, 2), 0.5)})
    run = open_run(write_recording(tmp_path / "r", [node], cadence_s=0.5))
    frame = run.to_pandas("gpu-0.5s")
    assert frame["gpu_sm_ratio"].mean() == 0.5
    assert frame.attrs["units"]["gpu_sm_ratio"] == "ratio"


def test_a_wrong_name_is_an_error_that_says_what_there_is(known, monkeypatch):
    known.write(stop=3)
    run = open_run(known.folder.root)
    with pytest.raises(UsageError, match="no samples of this group") as caught:
        run.to_pandas("disk")
    assert caught.value.allowed == ["rank"]
    with pytest.raises(UsageError, match="metric"):
        run.to_pandas("rank", ["nothing"])
    with pytest.raises(UsageError, match="logged") as caught:
        run.to_pandas("events", ["nothing"])
    assert caught.value.allowed == ["loss"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed"):
        run.to_pandas("rank")


def test_a_run_below_the_folder_that_a_profile_names_is_found_by_its_id(tmp_path, monkeypatch):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "alps.toml").write_text(f'runs = "{tmp_path}/scratch"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "scratch").mkdir()
    folder = RunFolder.create(tmp_path / "scratch", "far-20260101T000000Z-abcd")
    folder.plan.write_text("{}")
    assert open_run("far").folder.root.resolve() == folder.root.resolve()
    monkeypatch.setenv("CORDEE_RUNS", str(tmp_path / "elsewhere"))
    with pytest.raises(RunNotFound):
        open_run("far")
