"""The run's file system stands still, or is read-only, for longer than anything may be silent: nobody is killed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from support.hosts.preloading import build_faults, faulty
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

WAITS = """
import os, sys, time, cordee
for step in range(100_000):
    cordee.log(step=step, steps=100_000)
    time.sleep(0.02)
    if os.path.exists(sys.argv[1]):
        break
print("done")
"""
LOST_S = 3.0
STALL_S = 12.0


def made(job, runs, gate, **flags):
    run = LocalRun(job(WAITS, run=f"python train.py {gate}"), runs, vet__max_load=1000.0, **flags)
    plan = json.loads(run.folder.plan.read_text())
    plan["timeouts"]["lost_s"] = LOST_S
    run.folder.plan.write_text(json.dumps(plan))
    return run


def processes_of(run):
    return [run.pid("keeper"), run.pid("supervisor"), run.pid("rank 0")]


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Two files: while the first is there the runs' file system stands still, while the second is, it is read-only."""
    still, read_only = tmp_path / "still", tmp_path / "read-only"
    given = faulty(build_faults(tmp_path), still_in=tmp_path / "runs", still_while=still, read_only_while=read_only)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return still, read_only


@pytest.mark.parametrize(("fault", "words"), [(0, "it does not answer"), (1, "Read-only file system")])
def test_ranks_survive_a_file_system_that_stands_still_or_is_read_only(job, tmp_path, faults, fault, words):
    gate = tmp_path / "gate"
    with made(job, tmp_path / "runs", gate) as run:
        run.wait_training()
        was = processes_of(run)
        faults[fault].touch()
        time.sleep(STALL_S)
        assert [pid for pid in was if not os.path.exists(f"/proc/{pid}")] == []
        faults[fault].unlink()
        run.wait(lambda state: any(finding.rule == "disk-stalled" for finding in state.findings))
        gate.touch()
        state = run.wait_end()
    assert (state.state, state.epoch, state.attempt) == ("finished", 1, 1)
    assert f"{words}; waiting, the ranks go on" in (run.folder.control / "supervisor.log").read_text()
    assert b"done" in run.output(0)


def test_a_supervisor_that_the_disk_does_not_let_begin_has_not_crashed(job, tmp_path, faults):
    gate = tmp_path / "gate"
    with made(job, tmp_path / "runs", gate) as run:
        run.wait_training()
        faults[1].touch()
        run.kill("supervisor")
        time.sleep(STALL_S)
        faults[1].unlink()
        run.wait_training(2)
        gate.touch()
        state = run.wait_end()
    assert (state.state, state.attempt) == ("finished", 2)
    assert (run.folder.control / "keeper.log").read_text().count("waiting for it") == 1


@pytest.mark.gate
def test_a_run_on_a_disk_that_takes_nothing_can_be_cancelled(job, tmp_path, faults):
    with made(job, tmp_path / "runs", tmp_path / "gate") as run:
        run.wait_training()
        faults[1].touch()
        command = [sys.executable, "-c", "from cordee.faces.cli import main; main()", "cancel", str(run.folder.root)]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 5
        assert "the run is over" in refused.stderr
        assert "`cordee cancel` it again" in refused.stderr
        assert run.processes() == []
        faults[1].unlink()
        assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
        assert run.state.state == "cancelled"


def test_a_supervisor_that_begins_while_the_disk_stands_still_waits_and_is_not_killed(
    job, tmp_path, faults, monkeypatch
):
    gate = tmp_path / "gate"
    run = made(job, tmp_path / "runs", gate)
    monkeypatch.setenv("FAULT_STILL_IN", str(run.folder.control / "epochs"))
    with run:
        run.wait_training()
        faults[0].touch()
        before = run.pid("supervisor")
        run.kill("supervisor")
        run.wait(lambda _: living(run, "supervisor") not in (0, before))
        begins = run.pid("supervisor")
        time.sleep(STALL_S)
        assert run.pid("supervisor") == begins
        faults[0].unlink()
        run.wait_training(2)
        gate.touch()
        state = run.wait_end()
    assert (state.state, state.epoch, state.attempt) == ("finished", 2, 2)
    assert "cannot begin yet" in (run.folder.control / "supervisor.log").read_text()
    assert [one.rule for one in state.findings] == ["disk-stalled"]
    assert "a supervisor could not begin" in state.findings[0].text


def test_a_stall_that_holds_up_the_keeper_as_well_is_not_held_against_the_supervisor(job, tmp_path, faults):
    gate = tmp_path / "gate"
    with made(job, tmp_path / "runs", gate) as run:
        run.wait_training()
        before = run.pid("supervisor")
        run.kill("supervisor")
        run.wait(lambda _: living(run, "supervisor") not in (0, before))
        faults[0].touch()
        begins = run.pid("supervisor")
        time.sleep(STALL_S)
        faults[0].unlink()
        state = run.wait_training(2)
        assert (run.pid("supervisor"), state.epoch) == (begins, 2)
        gate.touch()
        assert run.wait_end().state == "finished"


def living(run, part):
    """Return the pid of a part of the run, 0 while it does not live."""
    try:
        return run.pid(part)
    except ProcessLookupError:
        return 0
