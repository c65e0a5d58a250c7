"""Killing every part of a run, one at a time: it finishes all the same, from its newest checkpoint."""

from __future__ import annotations

import json
import shutil
import signal
import time

import pytest

from cordee.errors import OwnershipError
from cordee.node.processes import all_processes
from cordee.supervise.ownership import Ownership

TWO = "[need]\nnodes = 2\n"
LONG = "python train.py 150 0.02"


def living(pids: list[int]) -> list[int]:
    table = all_processes()
    return [pid for pid in pids if pid in table and table[pid].state != "Z"]


@pytest.mark.parametrize("part", ["rank 0", "rank 1", "agent local-1", "supervisor", "keeper"])
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


def test_a_hung_agent_is_replaced(job, start):
    run = start(job(toml=TWO, run=LONG))
    plan = json.loads(run.folder.plan.read_text())
    assert plan["timeouts"]["lost_s"] == 20
    run.wait_training()
    run.kill("agent local-1", signal.SIGSTOP)
    state = run.wait(lambda state: state.restarts == 1, seconds=60)
    assert any("silent" in event["reason"] for event in run.events("node_lost"))
    state = run.wait_end()
    assert state.state == "finished"


def test_a_spare_takes_the_place_of_a_bad_node(job, start):
    folder = job(toml='setup = ["test $CORDEE_SETUP_NODE != local-0"]\n[need]\nnodes = 1\nspare_nodes = 1\n')
    run = start(folder)
    state = run.wait_end()
    assert state.state == "finished"
    roles = {node.node: (node.role, node.verdict) for node in state.nodes}
    assert roles == {"local-0": ("excluded", "bad"), "local-1": ("active", "healthy")}


def test_a_second_supervisor_is_refused(job, start):
    run = start(job(run=LONG))
    run.wait_training()
    with pytest.raises(OwnershipError, match="owns this run already"):
        Ownership(run.folder.control / "epochs").claim()
    assert run.wait_end().state == "finished"


def test_a_deleted_run_folder_ends_everything(job, start):
    run = start(job(toml=TWO, run="python train.py 100000 0.05"))
    run.wait_training()
    pids = [run.pid("keeper"), run.pid("supervisor"), run.pid("rank 0"), run.pid("rank 1")]
    shutil.rmtree(run.folder.root, ignore_errors=True)
    shutil.rmtree(run.folder.root, ignore_errors=True)
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and living(pids):
        time.sleep(0.1)
    assert living(pids) == []
    assert run.processes() == []


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
