"""When a command may take a run for over because its job is gone, and what happens when it was wrong."""

from __future__ import annotations

import os

import pytest

from cordee.job.submit import Standing
from cordee.job.submit.settle import settle
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, client_journal
from cordee.telemetry.store.phases import segment_times

NOW = 1_900_000_000.0


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")
    client_journal(made.journal).append("submitted", backend="slurm", nodes=1, ranks=1)
    client_journal(made.journal).append("placed", job="7")
    return made


@pytest.mark.parametrize("state", ["waiting", "running", "unknown"])
def test_a_run_that_may_still_be_held_is_left_alone(folder, state):
    assert not settle(folder, Standing(state, "7", "FAILED", 1e6)).ended


def test_a_run_that_was_never_placed_is_left_alone(folder):
    assert not settle(folder, Standing("gone", None, "it was never placed", 1e6)).ended


@pytest.mark.parametrize("word", ["FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT"])
def test_a_job_that_failed_has_a_minute_to_be_requeued(folder, word):
    folder.submit.mkdir(exist_ok=True)
    (folder.submit / "slurm-7.out").touch()
    assert not settle(folder, Standing("gone", "7", f"{word} exit code 0:9", 59.0)).ended
    state = settle(folder, Standing("gone", "7", f"{word} exit code 0:9", 61.0))
    assert (state.state, state.reason, state.exit_code) == ("failed", f"job_{word.lower()}", 1)
    assert "slurm-7.out" in state.text


def test_a_cancelled_job_is_over_at_once(folder):
    state = settle(folder, Standing("gone", "7", "CANCELLED"))
    assert (state.state, state.reason, state.exit_code) == ("cancelled", "cancelled", 1)
    assert ".out" not in state.text  # it never printed anything


def test_what_was_said_before_the_run_was_queued_does_not_end_it(folder):
    queued_at = settle(folder, Standing("waiting", "7")).phases[-1].start
    assert not settle(folder, Standing("gone", "7", "CANCELLED", at=queued_at - 1)).ended
    assert settle(folder, Standing("gone", "7", "CANCELLED", at=queued_at + 1)).ended


@pytest.mark.parametrize("said", ["CANCELLED", "NODE_FAIL", "Slurm does not know it any more"])
@pytest.mark.parametrize("what", ["journal/supervisor-1.jsonl", "telemetry/part", "logs/n1.log"])
def test_a_run_that_gives_signs_of_life_is_not_ended_by_what_is_said_of_its_job(folder, said, what):
    sign = folder.root / what
    sign.parent.mkdir(exist_ok=True)
    sign.touch()
    written = sign.stat().st_mtime
    for asked_at in (written - 100.0, written, written + 50.0):
        assert not settle(folder, Standing("gone", "7", said, 1e6, at=asked_at)).ended
    assert settle(folder, Standing("gone", "7", said, 1e6, at=written + 70.0)).ended


def test_a_record_of_the_end_is_the_last_word_whatever_was_written_shortly_before(folder):
    sign = folder.journal / "supervisor-1.jsonl"
    sign.touch()
    os.utime(sign, (NOW, NOW))
    state = settle(folder, Standing("gone", "7", "CANCELLED via condor_rm (by user ada)", at=NOW + 3, final=True))
    assert state.state == "cancelled"
    assert "by user ada" in state.text


def test_what_came_after_the_last_sign_of_life_was_no_training(folder):
    supervisor = JournalWriter(folder.journal, "supervisor-1", 1)
    supervisor.append("supervisor_started", epoch=1, segment=1, job="7")
    supervisor.append("attempt_started", attempt=1, world_size=1, nodes=[{"node": "n1", "ranks": [0]}])
    supervisor.append("rank_started", attempt=1, rank=0, node="n1", pid=1)
    written = (folder.journal / "supervisor-1.jsonl").stat().st_mtime
    gone = Standing("gone", "7", "CANCELLED", gone_s=1000.0, at=written + 8000.0)
    state = settle(folder, gone)
    (times,) = segment_times(state)
    assert times.train_s < 60.0
    assert state.ended_at is not None
    assert state.ended_at < written + 60.0


def test_a_forgotten_job_is_over(folder):
    state = settle(folder, Standing("gone", "7", "Slurm does not know it any more"))
    assert (state.state, state.reason, state.exit_code) == ("failed", "job_gone", 5)


def test_what_the_journal_says_stands(folder):
    JournalWriter(folder.journal, "supervisor-1", 1).append(
        "ended", state="finished", exit_code=0, reason="finished", text="all ranks exited with code 0"
    )
    assert settle(folder, Standing("gone", "7", "FAILED", 1e6)).state == "finished"
