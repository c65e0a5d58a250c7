"""Hardware of a job under Slurm: what each node finds while the ranks run is a finding of its own, shown by `cordee show`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cordee.core.findings import Finding
from cordee.faces.cli import main
from support.nvml import FakeGpus

WAITS = "import os, time\nwhile not os.path.exists('over'): time.sleep(0.1)\n"
NEED = '[need]\nnodes = 2\ngpus_per_node = 1\n[sampling]\ninterval = "0.1s"\ngpus = "nvml"'
_LONGEST_S = 60.0


def test_the_same_cause_on_two_nodes_is_a_finding_of_each_with_its_own_gpu_and_rank(
    job, start, slurm, fake_nvml, tmp_path, monkeypatch, capsys
):
    fake = FakeGpus(tmp_path / "fake", count=4, library=fake_nvml).device(0, ecc_uncorrectable=7)
    seen = {node: fake.on(node) for node in slurm.node_names}
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    folder = job("python train.py", NEED, WAITS)
    run = start(folder)

    def found():
        events = [Finding.from_document(event["finding"]) for event in run.events("finding")]
        return {one.evidence["nodes"][0]: one for one in events if one.rule == "hardware-gpu-memory"}

    late, errors = time.monotonic() + _LONGEST_S, 7
    while len(found()) < 2:
        assert time.monotonic() < late, found()
        errors += 1
        for gpus in seen.values():
            gpus.device(0, ecc_uncorrectable=errors)
        time.sleep(1)
    Path(folder, "over").touch()
    assert run.wait_end().state == "finished"
    for node, finding in found().items():
        assert finding.evidence["device"] == seen[node].uuid(0)
        assert finding.evidence["before"]["ecc_uncorrectable"] >= 7
    assert sorted(rank for one in found().values() for rank in one.evidence["ranks"]) == [0, 1]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["show", str(run.folder.root), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert {tuple(one["nodes"]) for one in shown["findings"] if one["rule"] == "hardware-gpu-memory"} == {
        (node,) for node in found()
    }
