from __future__ import annotations

import numpy as np
import pytest

import cordee
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import read_recorders
from support import recording_faults
from support.recordings.recording import STARTED_AT, MadeNode, made_node, write_recording


def test_a_made_recording_reads_back_as_it_was_made_and_says_that_it_was(tmp_path):
    values = np.linspace(0, 1, 12).reshape(6, 2)
    node = made_node(0, 2, {"gpu_sm_ratio": values, "gpu_dram_ratio": values / 2})
    node.logged = {1: [(0.5, 3, {"tokens": 4096.0})]}
    run = cordee.open_run(write_recording(tmp_path / "made", [node], cadence_s=0.5))
    grid = run.grid("gpu-0.5s", ["gpu_dram_ratio", "gpu_sm_ratio"])
    assert np.allclose(grid.values, [values / 2, values])
    assert grid.times[0] == STARTED_AT
    assert set(grid.sources.values()) == {"synthetic"}
    facts = run.facts("gpu")["nid000000"]
    assert facts["remarks"] == ["Synthetic: these samples were computed, not measured."]
    assert [facts["devices"][uuid]["ranks"] for uuid in grid.devices] == [[0], [1]]
    assert run.events("tokens")["tokens"]["value"].tolist() == [4096.0]
    recorders, remarks = read_recorders(RunFolder(tmp_path / "made"))
    assert remarks == []
    assert recorders[0].sources == ["synthetic"]
    assert [rank.exit_code for rank in recorders[0].ranks] == [0, 0]


@pytest.mark.parametrize("name", sorted(set(recording_faults.FAULTS) - {"no_gpu", "no_samples", "only_a_beginning"}))
def test_every_fault_is_a_recording_with_samples_of_gpus(name, tmp_path):
    run = cordee.open_run(recording_faults.FAULTS[name](tmp_path / name))
    grid = run.grid("gpu")
    assert grid.values.shape[1] >= 40
    assert np.isfinite(grid.values).any(axis=(0, 1)).all()


@pytest.mark.parametrize(
    ("name", "groups"), [("no_gpu", ["node", "rank"]), ("no_samples", []), ("only_a_beginning", [])]
)
def test_a_recording_without_gpu_samples_has_none(name, groups, tmp_path):
    assert cordee.open_run(recording_faults.FAULTS[name](tmp_path / name)).groups() == groups


def test_a_half_written_recording_keeps_what_came_before_the_tear(tmp_path):
    whole = cordee.open_run(recording_faults.killed_sampler(tmp_path / "whole")).grid("gpu")
    torn = cordee.open_run(recording_faults.half_written(tmp_path / "torn"))
    kept = torn.grid("gpu").values
    assert 0 < kept.shape[1] <= whole.values.shape[1]
    assert np.array_equal(kept, whole.values[:, : kept.shape[1]], equal_nan=True)
    _, remarks = read_recorders(torn.folder)
    assert len(remarks) == 1


def test_a_lost_gpu_is_missing_from_then_on_with_its_reason(tmp_path):
    run = cordee.open_run(recording_faults.lost_gpu(tmp_path / "lost"))
    values = run.grid("gpu", ["gpu_sm_ratio"]).values[0]
    assert np.isfinite(values[:60]).all()
    assert np.isnan(values[60:, 3]).all()
    assert np.isfinite(values[60:, :3]).all()
    lost = [about for about in run.facts("gpu")["nid000000"]["devices"].values() if "lost" in about]
    assert len(lost) == 1


def test_a_job_of_many_gpus_has_them_all(tmp_path):
    run = cordee.open_run(recording_faults.many_gpus(tmp_path / "many", gpus=80, seconds=5))
    assert run.grid("gpu", ["gpu_sm_ratio"]).values.shape == (1, 5, 80)


def test_a_node_without_devices_is_a_node_alone(tmp_path):
    node = MadeNode("alone", node_values={"cpu_busy_ratio": np.full(3, 0.5)})
    assert cordee.open_run(write_recording(tmp_path / "r", [node])).groups() == ["node"]
