"""`srun cordee record` on a real Slurm: one sampler per node and step, one recording of all nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

import cordee
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import read_recorders

SCRIPT = f"""#!/bin/bash
srun --nodes=2 --ntasks-per-node=2 cordee record --interval 200ms -- {sys.executable} train.py
echo "code $?"
srun --nodes=2 --ntasks-per-node=2 cordee record -o recordings/$SLURM_JOB_ID.0 -- true
echo "second $?"
srun --nodes=1 --ntasks=1 cordee record -q -- sh -c 'exit 9'
echo "code $?"
"""
TRAIN = """
import os, time
end = time.time() + 1.5
while time.time() < end: pass
raise SystemExit(4 if os.environ["SLURM_PROCID"] == "3" else 0)
"""


@pytest.fixture
def folder(slurm, tmp_path, monkeypatch):
    """A folder with a script, and `cordee` on PATH."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/cordee"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cordee.faces.cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.mark.gate
def test_the_nodes_of_a_step_meet_in_one_recording_with_one_sampler_each(folder):
    (folder / "job.sh").write_text(SCRIPT)
    command = ["sbatch", "--parsable", "--wait", "--nodes=2", "--ntasks-per-node=2", "--output=out", "job.sh"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=150)
    job = done.stdout.split()[0]
    said = (folder / "out").read_text()
    lines = said.splitlines()
    assert [line for line in lines if line.startswith(("code", "second"))] == ["code 4", "second 125", "code 9"], said
    assert said.count(f"cordee: recording into recordings/{job}.0") == 1
    assert said.count("this folder holds another recording") == 4
    assert sorted(path.name for path in (folder / "recordings").iterdir()) == [f"{job}.0", f"{job}.2"]

    found = samplers(folder / "recordings" / f"{job}.0", 2)
    assert len({one.node for one in found}) == 2
    assert {(one.job, one.step, one.world_size) for one in found} == {(job, "0", 4)}
    ranks = sorted((rank.rank, rank.exit_code) for one in found for rank in one.ranks)
    assert ranks == [(0, 0), (1, 0), (2, 0), (3, 4)]
    run = cordee.open_run(folder / "recordings" / f"{job}.0")
    grid = run.grid("rank-0.2s", ["cpu_cores_ratio"])
    assert sorted(grid.devices) == [0, 1, 2, 3]
    assert grid.values.shape[1] >= 2
    scored = subprocess.run(
        ["cordee", "score", "--json", f"recordings/{job}.0"], cwd=folder, capture_output=True, text=True, check=True
    )
    score = json.loads(scored.stdout)
    assert score["kind"] == "cpu"
    assert len(score["nodes"]) == 2
    assert len(score["ranks"]) == 4
    assert sorted(run.grid("node-0.2s", ["cpu_busy_ratio"]).devices) == sorted(one.node for one in found)


def samplers(root, count):
    """Return the documents of so many samplers, once they have closed the recording."""
    deadline = time.monotonic() + 120
    while True:
        found, _ = read_recorders(RunFolder(root))
        if len(found) == count and all(one.ended_at for one in found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
