from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from cordee.core.errors import CordeeError, UsageError
from cordee.faces.cli import cordee
from cordee.systems.score.load import load
from cordee.systems.score.score import score

BUSY = {"gpu_graphics_ratio": [0.9] * 20, "gpu_sm_ratio": [0.8] * 20, "gpu_tensor_ratio": [0.465] * 20}


def test_a_recording_of_two_nodes_is_scored_with_devices_nodes_and_ranks(made, tmp_path):
    for number, node in enumerate(("n0", "n1")):
        uuid = f"GPU-{number}"
        rank = made.rank(number, devices=[uuid], ended_at=made.T0 + 20, exit_code=0)
        folder, epoch = made.recording(tmp_path, rank, node=node, world_size=2)
        made.group(folder, epoch, node, "gpu", BUSY, [uuid], facts={uuid: {"model": made.H100, "index": 0}})
    trace = load(folder.root)
    assert [(device.key, device.node, device.model, device.ranks) for device in trace.devices] == [
        ("GPU-0", "n0", made.H100, (0,)),
        ("GPU-1", "n1", made.H100, (1,)),
    ]
    assert (trace.job.state, trace.job.world_size, trace.job.nodes) == ("finished", 2, ("n0", "n1"))
    found = score(trace)
    assert found.shares.score == pytest.approx(50, rel=1e-5)
    assert any("caps are the fallback" in reason for reason in found.confidence_reasons)
    assert [part.key for part in found.nodes] == ["n0", "n1"]
    assert [part.key for part in found.ranks] == ["0", "1"]
    assert found.shares.coverage == pytest.approx(1)


def test_a_node_that_left_no_samples_lowers_coverage_and_is_listed(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank(0, devices=["GPU-0"], ended_at=made.T0 + 20, exit_code=0))
    made.group(folder, epoch, "n0", "gpu", BUSY, ["GPU-0"], facts={"GPU-0": {"model": made.H100}})
    made.recording(tmp_path, made.rank(1, devices=["GPU-1"], ended_at=made.T0 + 20, exit_code=0), node="n1")
    found = score(load(folder.root))
    assert found.shares.coverage == pytest.approx(0.5)
    assert [(part.key, part.shares.score is None) for part in found.nodes] == [("n0", False), ("n1", True)]


def test_without_a_gpu_the_cores_of_a_node_are_scored_and_labelled_so(made, tmp_path):
    ranks = [made.rank(at, cpus=[0, 1], ended_at=made.T0 + 20, exit_code=0) for at in range(2)]
    folder, epoch = made.recording(tmp_path, *ranks)
    used = np.column_stack([np.full(20, 1.0), np.r_[np.full(10, 1.0), np.full(10, np.nan)]])
    made.group(folder, epoch, "n0", "rank", {"cpu_cores_ratio": used}, [0, 1])
    trace = load(folder.root)
    found = score(trace)
    assert (trace.kind, trace.source, found.assumed) == ("cpu", "proc", ("depth",))
    assert found.shares.time == pytest.approx(1)
    assert found.shares.breadth == pytest.approx(0.75)
    assert found.shares.score == pytest.approx(75)


def test_of_ranks_that_share_a_core_no_factor_is_more_than_all(made, tmp_path):
    rank = made.rank(0, cpus=[0, 1], ended_at=made.T0 + 20, exit_code=0)
    folder, epoch = made.recording(tmp_path, rank)
    used = np.r_[np.full(10, 0.5), np.full(10, 0.25)]
    made.group(folder, epoch, "n0", "rank", {"cpu_cores_ratio": used, "cpu_share_cores": np.full(20, 0.5)}, [0])
    found = score(load(folder.root))
    assert found.shares.time == pytest.approx(0.75)
    assert found.shares.breadth == pytest.approx(1)
    assert found.shares.score == pytest.approx(75)


def test_nothing_sampled_is_told_in_words(made, tmp_path):
    folder, _ = made.recording(tmp_path, made.rank())
    with pytest.raises(UsageError, match="nothing to score"):
        load(folder.root)


def test_gpus_that_said_nothing_are_told_with_their_reason(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank())
    lost = {"gpu_graphics_ratio": [np.nan] * 3}
    made.group(folder, epoch, "n0", "gpu", lost, ["GPU-0"], facts={}, missing={"gpu_graphics_ratio": "GPU is lost"})
    with pytest.raises(UsageError) as raised:
        load(folder.root)
    assert "GPU is lost" in str(raised.value)


@pytest.mark.parametrize("name", ["folder", "file", ""])
def test_what_is_no_recording_is_told(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(CordeeError, match="neither a recording nor a run"):
        load(str(tmp_path / name) if name else "")


def test_values_that_are_no_ratios_were_not_measured(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank())
    broken = {**BUSY, "gpu_sm_ratio": [0.8] * 10 + [2e9, -1.0, np.inf, 1.05] + [0.8] * 6}
    made.group(folder, epoch, "n0", "gpu", broken, ["GPU-0"], facts={"GPU-0": {"model": made.H100}})
    values = load(folder.root).load("gpu_sm_ratio")[:, 0]
    assert np.isnan(values[10:13]).all()
    assert values[13] == 1.0


def test_facts_that_make_no_sense_do_no_harm(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank())
    facts = {"GPU-0": {"model": 3, "index": "first", "share": -1, "ranks": ["x", None], "memory_bytes": "80G"}}
    made.group(folder, epoch, "n0", "gpu", BUSY, ["GPU-0"], facts=facts)
    device = load(folder.root).devices[0]
    assert (device.model, device.index, device.share, device.ranks, device.memory_bytes) == ("3", 0, 1.0, (), None)


def test_a_gpu_that_is_cut_into_instances_is_not_counted_twice(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank())
    facts = {"GPU-0": {}, "MIG-1": {"parent": "GPU-0", "share": 0.5}, "MIG-2": {"parent": "GPU-0", "share": 0.5}}
    made.group(folder, epoch, "n0", "gpu", BUSY, list(facts), facts=facts)
    assert [device.key for device in load(folder.root).devices] == ["MIG-1", "MIG-2"]


def test_nodes_that_are_one_machine_share_its_gpu_and_none_is_missed(made, tmp_path):
    for number in range(2):
        folder, epoch = made.recording(tmp_path, made.rank(number, devices=["GPU-0"]), node=f"n{number}", world_size=2)
        made.group(folder, epoch, f"n{number}", "gpu", BUSY, ["GPU-0"], facts={"GPU-0": {"ranks": [number]}})
    trace = load(folder.root)
    assert [(device.key, device.node, device.ranks) for device in trace.devices] == [("GPU-0", "n0", (0, 1))]
    assert not {"node-without-samples", "ranks-without-samples"} & {flag.rule for flag in score(trace).flags}


def test_samples_of_hosts_at_another_cadence_come_onto_the_clock_of_the_gpus(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank())
    fast = {name: values * 10 for name, values in BUSY.items()}
    made.group(folder, epoch, "n0", "gpu", fast, ["GPU-0"], cadence=0.1, start=made.T0 + 0.1)
    made.group(folder, epoch, "n0", "rank", {"cpu_cores_ratio": np.arange(1.0, 21.0)}, [0], start=made.T0 + 1)
    trace = load(folder.root)
    cores = trace.rank.load("cpu_cores_ratio")[:, 0]
    assert trace.cadence_s == pytest.approx(0.1)
    assert len(cores) == 200
    assert cores[:20].tolist() == [1.0] * 10 + [2.0] * 10


def test_what_ranks_logged_is_added_up(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank(0), made.rank(1))
    made.group(folder, epoch, "n0", "gpu", BUSY, ["GPU-0"])
    for rank in (0, 1):
        made.logged(folder, epoch, rank, tokens=[100.0] * 5)
    trace = load(folder.root)
    assert trace.logged["tokens"].values.tolist() == [200.0] * 5


def test_cordee_score_prints_the_score_and_one_json_document(made, tmp_path):
    folder, epoch = made.recording(tmp_path, made.rank(0, devices=["GPU-0"]))
    made.group(folder, epoch, "n0", "gpu", BUSY, ["GPU-0"], facts={"GPU-0": {"model": made.H100}})
    done = CliRunner().invoke(cordee, ["score", str(folder.root), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "cordee.score/1"
    assert document["score"] == pytest.approx(100 * document["time"] * document["breadth"] * document["depth"])
    done = CliRunner().invoke(cordee, ["score", str(folder.root)])
    assert "score 50.0" in done.output
