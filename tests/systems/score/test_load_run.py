from __future__ import annotations

import json

import numpy as np
import pytest

from cordee.core.units import utc_text
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan
from cordee.runs.folder import RunFolder
from cordee.systems.score.load import load
from cordee.systems.score.roofs import read_caps
from cordee.systems.score.score import score

STEPS = 30
PLACED = [{"node": "n0", "ranks": [0]}, {"node": "n1", "ranks": [1]}]
ATTEMPT_2 = {"attempt": 2, "world_size": 2, "nodes": PLACED, "resume_step": 9}


@pytest.fixture
def run(made, tmp_path):
    """A run of two nodes with two GPUs each whose first attempt failed after 15 steps of a second."""
    folder = RunFolder.create(tmp_path, "train-20260101T000000Z-abcd")
    tasks = {"argv": ["python", "train.py", "--name", "a b"]}
    folder.plan.write_text(json.dumps({"steps": [{"request": {"nodes": 2, "gpus_per_node": 2}, "tasks": tasks}]}))
    events = [
        (0, "supervisor_started", {"epoch": 1, "segment": 1, "job": "4711"}),
        (0, "node_connected", {"node": "n0"}),
        (0, "node_connected", {"node": "n1"}),
        (0, "attempt_started", {"attempt": 1, "world_size": 2, "nodes": PLACED}),
        *((0, "rank_started", {"rank": rank}) for rank in (0, 1)),
        (15, "attempt_ended", {"attempt": 1, "outcome": "failed"}),
        (20, "attempt_started", ATTEMPT_2),
        *((20, "rank_started", {"rank": rank}) for rank in (0, 1)),
        (40, "attempt_ended", {"attempt": 2, "outcome": "finished"}),
        (40, "ended", {"state": "finished", "exit_code": 0}),
    ]
    lines = [
        {"schema": "cordee.journal/1", "epoch": 1, "seq": at, "writer": "supervisor-1", "event": event, **fields}
        | {"time": utc_text(made.T0 + second), "mono": second}
        for at, (second, event, fields) in enumerate(events)
    ]
    (folder.journal / "supervisor-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number, node in enumerate(("n0", "n1"), 1):
        uuids = [f"GPU-{number}{at}" for at in range(2)]
        facts = {uuid: {"model": made.H100, "index": at, "ranks": [number - 1]} for at, uuid in enumerate(uuids)}
        levels = {"gpu_graphics_ratio": 0.5, "gpu_sm_ratio": 0.4, "gpu_tensor_ratio": 0.093}
        columns = {name: np.full(40, level) for name, level in levels.items()}
        made.group(folder, number, node, "gpu", columns, uuids, facts=facts, start=made.T0 + 1)
    made.logged(folder, 3, 0, tokens=[100.0] * 15)
    return folder


def test_a_run_is_scored_with_what_its_plan_and_journal_say(run):
    trace = load(run.root)
    assert trace.job.command == "python train.py --name 'a b'"
    assert (trace.job.state, trace.job.exit_code, trace.job.job) == ("finished", 0, "4711")
    assert (trace.job.world_size, trace.job.nodes, trace.job.allocated) == (2, ("n0", "n1"), 4)
    found = score(trace)
    assert found.shares.score == pytest.approx(10, rel=1e-4)
    assert found.shares.coverage == pytest.approx(1.0)
    assert [part.key for part in found.ranks] == ["0", "1"]
    assert found.rates["tokens_per_s"] == pytest.approx(1500 / 40)


def test_goodput_leaves_out_pauses_between_attempts_and_steps_done_again(run):
    """Of 40 s 5 s passed between the attempts, and 5 of the 15 steps were lost with the first."""
    assert load(run.root).job.productive_ratio == pytest.approx(1 - (5 + 5) / 40)


def test_a_run_is_scored_while_it_goes_on_and_without_its_plan(run):
    journal = run.journal / "supervisor-1.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:6]))
    run.plan.unlink()
    trace = load(run.root)
    assert (trace.job.state, trace.job.command, trace.job.allocated) == ("running", "", None)
    assert score(trace).shares.score == pytest.approx(10, rel=1e-4)


PROFILE = """
scheduler = "local"
[gpu.h100]
memory = "80GB"
tflops_bf16 = 800
bandwidth = "3TB"
[gpu.h100_pcie]
memory = "80GB"
tflops_bf16 = 500
[gpu.tomorrow]
memory = "1TB"
tflops_bf16 = 9000
"""


@pytest.fixture
def planned(run, tmp_path, monkeypatch):
    """The same run as it is planned where a site's profile says what GPUs can do."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/ours.toml").write_text(PROFILE)
    (tmp_path / "cordee.toml").write_text('name = "train"\nrun = "python3 train.py"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    plan, _ = make_plan(load_job(tmp_path, cluster="ours"), run_id=run.root.name, run_folder=run.root)
    run.plan.write_text(json.dumps(plan.document()))
    return run


def test_what_the_profile_says_of_a_gpu_goes_before_what_is_shipped(planned):
    (cap,) = score(load(planned.root)).caps
    assert (cap.peak_flops, cap.peak_bytes_per_second) == (500e12, 2.0e12)
    assert (cap.sms, cap.pipe["tensor"]) == (114, 0.93)  # of which the profile says nothing


def test_mfu_is_over_the_peak_of_a_gpu_that_only_the_profile_knows(made, planned):
    facts = {"GPU-30": {"model": "Vendor Tomorrow 1TB", "index": 0, "ranks": [2]}}
    columns = {"gpu_graphics_ratio": np.full(40, 0.5)}
    made.group(planned, 4, "n2", "gpu", columns, ["GPU-30"], facts=facts, start=made.T0 + 1)
    made.logged(planned, 5, 0, flops=[4.4e15 * 40 / 10] * 10)
    found = score(load(planned.root))
    assert {cap.model: cap.peak_flops for cap in found.caps} == {made.H100: 500e12, "Vendor Tomorrow 1TB": 9000e12}
    assert found.mfu == pytest.approx(4.4 / (9 + 4 * 0.5))


def test_a_file_of_caps_goes_before_the_profile(planned, tmp_path):
    (tmp_path / "caps.toml").write_text('[model."NVIDIA H100"]\npeak_flops = 700e12\n')
    (cap,) = score(load(planned.root), caps=read_caps(tmp_path / "caps.toml")).caps
    assert cap.peak_flops == 700e12
