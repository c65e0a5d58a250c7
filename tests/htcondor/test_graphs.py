"""Steps on a real pool of HTCondor while nobody looks: a job at the access point starts what comes next."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.testing.patience import wait_until

pytestmark = pytest.mark.usefixtures("real")

STEP = """
import pathlib, sys, time
made = pathlib.Path("made.txt")
if sys.argv[1] == "first":
    made.write_text("by the first")
if sys.argv[1] == "good":
    assert made.read_text() == "by the first"
print("this is", sys.argv[1], flush=True)
time.sleep(3)
sys.exit(sys.argv[1] == "bad")
"""
STEPS = """
[steps.first]
run = "python train.py first"
outputs = ["made.txt"]
[steps.bad]
run = "python train.py bad"
after = ["first"]
[steps.good]
run = "python train.py good"
after = ["first"]
[steps.never]
run = "python train.py never"
after = ["bad"]
"""


def started(folder, runs) -> RunFolder:
    argv = [sys.executable, "-m", "cordee", "run", "--on", "htcondor", "--detach", "--runs", str(runs)]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return RunFolder(next(runs.glob("t-*")))


def state_of(folder: RunFolder) -> RunState:
    """Return what the journal says; nobody is asked, so that nothing is started by asking."""
    return replay(read_journal(folder.journal), folder.id)


def test_steps_go_on_while_nobody_looks_also_when_the_access_point_is_killed(job, htcondor, profile, tmp_path):
    folder = started(job("python train.py main", STEPS, STEP), tmp_path / "runs")
    assert htcondor.command("condor_q", "-af", "CordeeGraph").count(folder.id) == 1
    htcondor.kill_schedd()
    assert wait_until(lambda: state_of(folder).ended, 180.0), state_of(folder)
    state = state_of(folder)
    assert {entry["name"]: entry["state"] for entry in state.children} == {
        "first": "finished",
        "bad": "failed",
        "good": "finished",
    }
    assert state.state == "failed"
    assert (folder.code / "made.txt").read_text() == "by the first"
    assert "not started: never" in state.text
    assert wait_until(lambda: folder.id not in htcondor.command("condor_q", "-af", "CordeeGraph"), 60.0)


def test_a_test_comes_first_and_the_job_after_it(job, htcondor, profile, tmp_path):
    folder = started(job("python train.py main", '[test]\nrun = "python train.py test"', STEP), tmp_path / "runs")
    assert wait_until(lambda: state_of(folder).ended, 180.0), state_of(folder)
    assert state_of(folder).state == "finished"
    assert state_of(folder).job is not None
