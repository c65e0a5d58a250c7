"""`srun cordee env run` in a batch script that somebody wrote by hand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cordee.testing.images import busybox_root

SCRIPT = """#!/bin/bash
export LEVEL=host
srun cordee env run env.toml -- sh -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: $LEVEL $(cat /where)"'
srun --nodes=1 --ntasks=1 cordee env run env.toml -- sh -c 'exit 9'
echo "code $?"
srun cordee env run env.toml -- no-such-program
echo "code $?"
srun --nodes=1 --ntasks=1 cordee env run --engine podman env.toml -- sh -c 'echo podman $LEVEL'
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an EDF, and `cordee` on PATH."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/cordee"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cordee.faces.cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    root = busybox_root(tmp_path / "root")
    (root / "where").write_text("inside")
    (tmp_path / "env.toml").write_text(f'image = "{root}"\n[env]\nLEVEL = "edf"\n')
    return tmp_path


@pytest.mark.gate
def test_each_task_runs_in_the_environment_with_its_own_exit_code(slurm, folder):
    (folder / "job.sh").write_text(SCRIPT)
    command = ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2", "--output=out", "job.sh"]
    job = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    slurm.wait_ended(job, 150)
    said = (folder / "out").read_text()
    tasks = sorted(line for line in said.splitlines() if line.startswith("task"))
    assert [line.partition(" on ")[0] for line in tasks] == [f"task {rank} of 4" for rank in range(4)], said
    assert all(line.endswith(": edf inside") for line in tasks)
    assert [line for line in said.splitlines() if line.startswith("code")] == ["code 9", "code 127"]
    assert "no command no-such-program inside" in said
    assert "podman edf" in said
