"""Who leads a run under Slurm after its job was requeued on the same host."""

from __future__ import annotations

import subprocess

import pytest

from cordee.backends.slurm.node.allocation import SlurmAllocation
from cordee.control.identity import identity
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.runs.plan import Checkpoints, RunPlan, RunSampling, RunStep, RunTasks, RunTimeouts

PLAN = RunPlan(
    "r",
    "slurm",
    "/job",
    "/job",
    "/run",
    (RunStep(RunTasks(("true",), {}), Checkpoints("/run/checkpoints")),),
    RunTimeouts(60.0, 1.0, 20.0, 60.0, 10.0, 8.0),
    RunSampling(1.0),
)


@pytest.fixture
def owner():
    """A process, and how the supervisor that it stands for described itself before the job was requeued."""
    process = subprocess.Popen(["sleep", "600"])
    ticks = processes.read_process(process.pid).start_ticks
    yield process, {**identity(), "pid": process.pid, "start_ticks": ticks, "job": "7", "requeues": 0}
    process.kill()
    process.wait()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the place of a supervisor after so many requeues of job 7."""
    monkeypatch.setattr(processes, "be_told_when_parent_dies", lambda number: None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    def made(requeues):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(requeues))
        return SlurmAllocation(RunFolder(tmp_path), PLAN)

    return made


def test_an_owner_that_a_requeue_left_behind_is_killed_and_waited_for_until_it_is_gone(owner, place, monkeypatch):
    process, described = owner
    real, asked = processes.kill_all, []

    def slow_to_die(pids):
        asked.append(pids)
        return real(pids) if len(asked) > 3 else 1

    monkeypatch.setattr(processes, "kill_all", slow_to_die)
    assert place(1).owner_alive(described) is False
    assert process.wait(10) == -9
    assert asked == [[process.pid]] * len(asked)
    assert len(asked) > 3


def test_an_owner_of_this_very_start_keeps_the_run(owner, place):
    process, described = owner
    assert place(0).owner_alive(described) is True
    assert process.poll() is None
