"""A run of two nodes under Slurm: each node's agent samples the job's own GPUs, and the score is of all of them."""

from __future__ import annotations

import json

import pytest

import cordee
from cordee.faces.report import render
from support.nvml import FakeGpus


@pytest.mark.gate
def test_gpus_of_two_nodes_are_the_jobs_own_and_make_one_score(job, start, slurm, fake_nvml, tmp_path, monkeypatch):
    fake = FakeGpus(tmp_path / "fake", count=4, library=fake_nvml)
    for gpu in range(4):
        fake.gpm(gpu, {1: 80.0, 2: 40.0, 5: 40.0, 10: 10.0})
    seen = {node: fake.on(node) for node in slurm.node_names}
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    toml = '[need]\nnodes = 2\ngpus_per_node = 2\ncpus_per_rank = 1\n[sampling]\ninterval = "0.5s"\ngpus = "nvml-gpm"'
    run = start(job("python train.py", toml, "import time; time.sleep(6)"))
    assert run.wait_end().state == "finished"
    read = cordee.open_run(run.folder.root)
    facts = read.facts("gpu")
    assert len(facts) == 2
    for node, about in facts.items():
        assert set(about["devices"]) == {seen[node].uuid(0), seen[node].uuid(1)}, about
    render(run.folder.root)
    found = json.loads((run.folder.report / "report.json").read_text())["saturation"]
    assert (found["kind"], found["source"]) == ("gpu", "nvml-gpm")
    assert found["time"] == pytest.approx(0.8, abs=0.01)
    assert found["breadth"] == pytest.approx(0.5, abs=0.01)
