"""Killing every part of a run, one at a time: it finishes all the same, from its newest checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cordee.control.identity import identity
from cordee.control.supervisor.ownership import Ownership
from cordee.core.errors import OwnershipError
from cordee.machine.processes.tree import all_processes, read_process
from cordee.testing.patience import wait_until
from support.hosts.preloading import build_faults, faulty
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

TWO = "[need]\nnodes = 2\n"
LONG = "python train.py 150 0.02"


@pytest.fixture
def gate(tmp_path):
    """A file that a `gated` training waits for before it ends, however slow the machine is."""
    return tmp_path / "gate"


def gated(gate) -> str:
    return f"{LONG} {gate}"


def living(pids: list[int]) -> list[int]:
    table = all_processes()
    return [pid for pid in pids if pid in table and table[pid].state != "Z"]


@pytest.mark.parametrize("part", ["rank 1", "agent local-1", "supervisor", "keeper"])
@pytest.mark.gate
def test_killing_a_part_does_not_end_the_run(job, start, part):
    run = start(job(toml=TWO, run=LONG))
    run.wait(lambda state: state.checkpoint is not None)
    run.kill(part)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("finished", 0)
    assert b"counted to 150" in run.output(0)
    assert state.restarts == (0 if part == "keeper" else 1)
    if part != "keeper":
        assert state.resume_step
    assert run.processes() == []


def test_keeper_and_supervisor_killed_at_once_come_back(job, start):
    run = start(job(toml=TWO, run=LONG))
    run.wait(lambda state: state.checkpoint is not None)
    pids = [run.pid("keeper"), run.pid("supervisor")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 1)


def test_a_supervisor_killed_as_the_end_is_written_leaves_a_run_that_whoever_reads_it_completes(job, start):
    run = start(job(toml=TWO), reported=True)
    pid = run.wait_training() and run.pid("supervisor")
    run.wait(lambda state: state.ended)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert run.wait_end().state == "finished"
    for command in ("show", "report"):
        done = subprocess.run([sys.executable, "-m", "cordee.faces.cli", command, str(run.folder.root)], check=False)
        assert done.returncode == 0
    assert (run.folder.root / "report" / "report.json").is_file()
    assert run.events("ended")[1:] == []
    assert run.processes() == []


def test_a_hung_agent_is_replaced(job, start, gate):
    run = start(job(toml=TWO, run=gated(gate)), timeouts__lost=5.0)
    run.wait_training()
    run.kill("agent local-1", signal.SIGSTOP)
    state = run.wait(lambda state: state.restarts == 1, seconds=60)
    assert any("silent" in event["reason"] for event in run.events("node_lost"))
    gate.touch()
    state = run.wait_end()
    assert state.state == "finished"


@pytest.mark.gate
def test_a_spare_takes_the_place_of_a_bad_node(job, start):
    folder = job(toml='setup = ["test $CORDEE_SETUP_NODE != local-0"]\n[need]\nnodes = 1\nspare_nodes = 1\n')
    run = start(folder)
    state = run.wait_end()
    assert state.state == "finished"
    roles = {node.node: (node.role, node.verdict) for node in state.nodes}
    assert roles == {"local-0": ("excluded", "bad"), "local-1": ("active", "healthy")}


def test_a_second_supervisor_is_refused(job, start, gate):
    run = start(job(run=gated(gate)))
    run.wait_training()
    with pytest.raises(OwnershipError, match="owns this run already"):
        Ownership(run.folder.control / "epochs").claim()
    gate.touch()
    assert run.wait_end().state == "finished"


def test_a_second_supervisor_process_leaves_the_run_alone(job, start, gate):
    run = start(job(run=gated(gate)))
    run.wait_training()
    command = [sys.executable, "-m", "cordee.control.supervisor.supervisor", "--folder", str(run.folder.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 101
    assert "owns this run already" in done.stderr
    gate.touch()
    state = run.wait_end()
    assert (state.state, state.restarts, state.epoch) == ("finished", 0, 1)


def test_an_agent_that_never_connects_is_left_out(job, tmp_path):
    run = LocalRun(job(toml="[need]\nnodes = 2\nmin_nodes = 1"), tmp_path / "runs")
    plan = json.loads(run.folder.plan.read_text())
    plan["timeouts"]["connect_s"] = 2.0
    run.folder.plan.write_text(json.dumps(plan))
    decoy = subprocess.Popen(["sleep", "60"])
    found = read_process(decoy.pid)
    record = {**identity(), "pid": decoy.pid, "start_ticks": found.start_ticks, "incarnation": 1}
    (run.folder.control / "agent-local-1.json").write_text(json.dumps(record))
    try:
        with run:
            state = run.wait_end()
    finally:
        decoy.kill()
        decoy.wait()
    assert state.state == "finished"
    assert run.events("node_lost")[0]["reason"] == "no agent connected within 2 s"
    assert run.events("attempt_started")[0]["world_size"] == 1


def test_a_supervisor_that_hangs_is_replaced(job, tmp_path):
    run = LocalRun(job(run=LONG), tmp_path / "runs")
    plan = json.loads(run.folder.plan.read_text())
    plan["timeouts"]["lost_s"] = 3.0
    run.folder.plan.write_text(json.dumps(plan))
    with run:
        run.wait(lambda state: state.checkpoint is not None)
        run.kill("supervisor", signal.SIGSTOP)
        state = run.wait_end()
    assert (state.state, state.restarts, state.epoch) == ("finished", 1, 2)


QUIET = """
import time, cordee
for step in range(200):
    cordee.log(step=step, steps=200)
    time.sleep(0.02)
print("counted to 200")
"""


def test_a_full_disk_in_mid_run_loses_no_event(job, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)], check=True)
    try:
        with LocalRun(job(QUIET, run="python train.py 200 0.02"), small / "runs", vet__min_disk=1) as run:
            run.wait_training()
            ballast = small / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            time.sleep(2.5)
            assert not run.state.ended
            ballast.unlink()
            state = run.wait_end()
            sequence = [event["seq"] for event in run.events() if event["writer"] == "supervisor-1"]
            assert sequence == list(range(len(sequence)))
            assert (state.state, state.restarts) == ("finished", 0)
            assert b"counted to 200" in run.output(0)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_code_that_changed_after_submission_is_a_finding(job, tmp_path):
    folder = job()
    run = LocalRun(folder, tmp_path / "runs")
    (folder / "train.py").write_text((folder / "train.py").read_text() + "print('edited')\n")
    with run:
        state = run.wait_end()
    assert [finding.rule for finding in state.findings] == ["code-changed"]
    assert "train.py" in state.findings[0].text
    assert b"edited" in run.output(0)


@pytest.mark.gate
def test_snapshot_code_runs_what_was_submitted(job, tmp_path):
    folder = job(toml='code = "snapshot"')
    run = LocalRun(folder, tmp_path / "runs")
    (folder / "train.py").write_text("raise SystemExit('edited')\n")
    with run:
        state = run.wait_end()
    assert state.state == "finished"
    assert b"edited" not in run.output(0)


def test_a_deleted_run_folder_ends_everything(job, start):
    run = start(job(toml=TWO, run="python train.py 100000 0.05"))
    run.wait_training()
    pids = [run.pid("keeper"), run.pid("supervisor"), run.pid("rank 0"), run.pid("rank 1")]
    shutil.rmtree(run.folder.root, ignore_errors=True)
    shutil.rmtree(run.folder.root, ignore_errors=True)
    wait_until(lambda: not living(pids) and not run.processes(), said=lambda: (living(pids), run.processes()))


def test_a_file_system_that_does_not_say_who_owns_the_run_takes_it_from_nobody(job, start, tmp_path, monkeypatch):
    unseen, gate = tmp_path / "unseen", tmp_path / "gate"
    for name, value in faulty(build_faults(tmp_path), unseen_while=unseen).items():
        monkeypatch.setenv(name, value)
    run = start(job(toml=TWO, run=f"python train.py 20 0.02 {gate}"))
    run.wait_training()
    was = [run.pid("keeper"), run.pid("supervisor"), run.pid("rank 0"), run.pid("rank 1")]
    unseen.touch()
    logs = [run.folder.control / f"{name}.log" for name in ("supervisor", "keeper")]
    wait_until(lambda: all("cannot see who owns" in log.read_text() for log in logs))
    assert living(was) == was
    unseen.unlink()
    gate.touch()
    state = run.wait_end()
    assert (state.state, state.epoch, state.attempt) == ("finished", 1, 1)
    assert [log.read_text().count("cannot see who owns") for log in logs] == [1, 1]


@pytest.mark.gate
def test_all_killed_at_once_can_be_resumed(job, start):
    run = start(job(toml=TWO, run=LONG))
    run.wait(lambda state: state.checkpoint is not None)
    run.end()
    assert run.processes() == []
    assert not run.state.ended
    run.start()
    state = run.wait_end()
    assert state.state == "finished"
    assert state.resume_step


def test_two_agents_of_one_node_do_not_fight(job, start, gate):
    run = start(job(run=gated(gate)))
    run.wait_training()
    command = [sys.executable, "-s", "-m", "cordee.control.agent.agent", "--folder", str(run.folder.root)]
    done = subprocess.run([*command, "--node", "local-0", "--incarnation", "1"], check=False, timeout=300)
    assert done.returncode == 0
    gate.touch()
    assert run.wait_end().state == "finished"


def test_cancelling_leaves_nothing_even_of_what_was_never_recorded(job, start):
    run = start(job(run=LONG))
    run.wait_training()
    for path in run.folder.control.glob("agent-*.json"):
        path.unlink()
    run.end()
    assert run.processes() == []
    time.sleep(4)  # an agent that were left would have started a keeper by now
    assert run.processes() == []
