"""What agent and ranks leave for each other in a node's memory, where that is full, emptied, or taken by somebody else."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

import cordee
from cordee.faces.cli.follow import request_cancel
from cordee.machine.node_folder import NodeFolder, folders_of, memory_places
from support.hosts.preloading import build_faults, faulty

pytestmark = pytest.mark.usefixtures("real")

TMP = tempfile.gettempdir()


def troubles(run):
    found = [event["finding"] for event in run.events("finding")]
    return [finding["text"] for finding in found if finding["rule"] == "control-trouble"]


def preload(monkeypatch, **faults):
    for name, value in faulty(build_faults(faults.pop("into")), **faults).items():
        monkeypatch.setenv(name, value)


@pytest.mark.gate
def test_where_memory_is_full_channels_are_made_on_a_disk_and_that_is_said(job, start, tmp_path, monkeypatch):
    preload(monkeypatch, into=tmp_path, no_room_in=["/dev/shm"])
    run = start(job(toml="[need]\nranks_per_node = 2"))
    state = run.wait_end()
    assert (state.state, state.restarts, state.step) == ("finished", 0, 19)
    (text,) = troubles(run)
    assert "not in memory: /dev/shm: No space left on device" in text


def test_where_memory_is_full_set_up_lines_leave_their_environment_on_a_disk(job, start, tmp_path, monkeypatch):
    preload(monkeypatch, into=tmp_path, no_room_in=["/dev/shm"])
    run = start(job(run=["sh", "-c", "echo found $FROM_SETUP"], toml='setup = ["export FROM_SETUP=there"]'))
    assert run.wait_end().state == "finished"
    assert b"found there" in run.output()
    assert any("setup-environment lies in" in text for text in troubles(run))


def test_where_no_place_has_room_the_rank_does_not_start_and_the_run_says_why(job, start, tmp_path, monkeypatch):
    preload(monkeypatch, into=tmp_path, no_room_in=["/dev/shm", TMP, "/tmp"])
    run = start(job(toml="[need]\nranks_per_node = 2"), restart__retries=0)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("failed", 1)
    assert "did not start: the channel of rank 0 needs 1.05 MB" in state.text
    assert "/dev/shm: No space left on device" in state.text


def test_memory_that_was_emptied_at_logout_is_made_again_for_the_next_attempt(job, start):
    run = start(job(run="python train.py 400 0.02"))
    run.wait(lambda state: state.checkpoint is not None)
    (folder,) = folders_of(run.folder.id, "local-0")
    shutil.rmtree(folder.parent)
    run.kill("rank 0")
    state = run.wait_end()
    assert (state.state, state.restarts, state.step) == ("finished", 1, 399)
    assert list(folders_of(run.folder.id, "local-0")) == []


def test_what_a_killed_run_left_is_swept_by_a_later_one_and_what_is_in_use_is_not(job, start):
    left = start(job(run="python train.py 500 0.02"))
    left.wait_training()
    (folder,) = folders_of(left.folder.id, "local-0")
    assert oct(folder.parent.parent.stat().st_mode & 0o777) == "0o700"
    left.end()
    os.utime(folder / "in-use", (time.time() - 86400,) * 2)
    used = NodeFolder(memory_places()[0], f"{left.folder.id}-beside", "local-0")
    os.utime(used.path / "in-use", (time.time() - 86400,) * 2)
    run = start(job())
    assert run.wait_end().state == "finished"
    assert not folder.exists()
    assert used.path.exists()
    used.remove()


def test_a_garbled_request_is_passed_over_and_the_next_one_heard(job, start):
    run = start(job(run="python train.py 5000 0.02"))
    run.wait_training()
    (run.folder.requests / "a.json").write_text("[" * 100_000)
    request_cancel(run.folder, by="test")
    state = run.wait_end()
    assert (state.state, state.restarts, troubles(run)) == ("cancelled", 0, [])


def test_an_agent_whose_sampling_fails_says_so_and_stays(job, tmp_path):
    from support.runs.real_run import LocalRun

    with_trouble = LocalRun(job(run="python train.py 20 0.1"), tmp_path / "runs", vet__max_load=1000.0)
    folder = NodeFolder(memory_places()[0], with_trouble.folder.id, "local-0")
    (folder.path / "ranks.new").mkdir()
    with with_trouble as run:
        state = run.wait_end()
        assert (state.state, state.restarts, state.step) == ("finished", 0, 19)
        assert any("what this node measures is not complete: IsADirectoryError" in text for text in troubles(run))
    folder.remove()


LOGS_BESIDE = """
import os, sys, time
import cordee
for step in range(200):
    cordee.log(step=step, loss=1.0)
    with open(sys.argv[1], "a") as told:
        told.write(f"{os.environ['CORDEE_ATTEMPT']} {step}\\n")
    time.sleep(0.02)
"""


@pytest.mark.gate
def test_what_ranks_logged_is_brought_by_the_next_agent_when_theirs_was_ended_while_no_supervisor_answered(
    job, start, tmp_path
):
    beside = tmp_path / "told"
    run = start(job(LOGS_BESIDE, run=f"python train.py {beside}"))
    run.wait(lambda _: beside.is_file() and beside.read_text().count("\n") > 20)
    run.kill("keeper", signal.SIGSTOP)
    run.kill("supervisor", signal.SIGKILL)
    before = beside.read_text().count("\n")
    run.wait(lambda _: beside.read_text().count("\n") > before + 20)
    run.kill("agent local-0", signal.SIGTERM)
    run.wait(lambda _: not any(b"train.py" in _command(pid) for pid in run.processes()))
    run.kill("keeper", signal.SIGCONT)
    assert run.wait_end().state == "finished"
    events = cordee.open_run(run.folder.root).events()["loss"]
    stored = [f"{attempt} {step}" for attempt, step in zip(events["attempt"], events["step"], strict=True)]
    assert sorted(set(beside.read_text().splitlines()) - set(stored)) == []
    assert len(stored) == len(set(stored))
    assert run.events("finding") == []
    assert list(folders_of(run.folder.id, "local-0")) == []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
