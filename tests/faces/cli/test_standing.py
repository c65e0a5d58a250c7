"""What commands say of where a run stands."""

from __future__ import annotations

import json
import os

import pytest

from cordee.faces.cli.scheduler_state import stand, state_word, timely, words
from cordee.job.submit import Standing
from cordee.runs.folder import RunFolder
from cordee.runs.state import Phase, RunState

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (Standing("waiting", "12", "Priority"), "waiting in the queue: Priority (job 12)"),
        (Standing("waiting", "12", "Priority", at=NOW - 40), "waiting in the queue: Priority (job 12), 40 s ago"),
        (Standing("running", "12", at=NOW - 2), "has its nodes (job 12)"),
        (Standing("unknown", "12"), "submitted; the scheduler is asked about it within a minute (job 12)"),
        (Standing("unknown", "12", "no answer"), "the scheduler could not be asked: no answer (job 12)"),
        (
            Standing("held", "12", "JobHeldUser", next="`scontrol release 12`", idle_since=NOW - 125),
            "held in the queue: JobHeldUser (job 12); has not run for 2 min 5 s; next: `scontrol release 12`",
        ),
        (
            Standing("suspended", "12", next="wait", at=NOW - 20, idle_since=NOW - 30),
            "suspended: it has its nodes and its processes are stopped (job 12), 20 s ago; has not run for 30 s; next: wait",
        ),
        (Standing("gone", None, "it was never placed"), "was never placed; `cordee resume` submits it"),
    ],
)
def test_a_standing_is_said_with_its_age_when_it_is_old(standing, said):
    assert words(standing, NOW) == said


def state(name: str, phase: str, seconds_ago: float) -> RunState:
    return RunState(state=name, phases=[Phase(phase, NOW - seconds_ago)])


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")


def test_an_answer_from_before_the_segment_ended_is_none(folder):
    before = Standing("running", "12", at=NOW - 10)
    assert timely(folder, before, state("queued", "queue", 5)).state == "unknown"
    assert timely(folder, before, state("queued", "queue", 20)) == before


@pytest.mark.parametrize("said", ["waiting", "held", "suspended"])
def test_a_run_that_began_since_the_answer_runs(folder, said):
    before = Standing(said, "12", "Priority", at=NOW - 10)
    assert timely(folder, before, state("running", "train", 5)).state == "running"


@pytest.mark.parametrize("said", ["waiting", "held", "suspended"])
def test_a_run_that_gave_a_sign_of_life_since_the_answer_runs(folder, said):
    sign = folder.journal / "supervisor-1.jsonl"
    sign.touch()
    for seconds_ago, found in ((5, "running"), (15, said)):
        os.utime(sign, (NOW - seconds_ago, NOW - seconds_ago))
        standing = timely(folder, Standing(said, "12", at=NOW - 10), state("running", "train", 100))
        assert (standing.state, standing.idle_since) == (found, None if found == "running" else NOW - 15)


def test_a_held_run_that_has_not_begun_is_held_since_it_was_queued(folder):
    held = Standing("held", "12", "JobHeldUser", at=NOW - 10)
    assert timely(folder, held, state("queued", "queue", 20)).idle_since == NOW - 20
    waited = Standing("waiting", "12", "Priority", at=NOW - 10)
    assert timely(folder, waited, state("queued", "queue", 20)) == waited


def test_a_hold_of_before_its_release_is_over_and_a_later_one_is_not(folder):
    released = state("queued", "queue", 50)
    released.hold_released = {"at": NOW - 20, "job": "12"}
    for seconds_ago, found in ((30, "waiting"), (10, "held")):
        assert timely(folder, Standing("held", "12", at=NOW - seconds_ago), released).state == found


def test_a_job_that_is_gone_stays_gone(folder):
    gone = Standing("gone", "12", "FAILED", at=NOW - 10)
    assert timely(folder, gone, state("queued", "queue", 5)) == gone


def test_the_scheduler_has_a_word_for_runs_that_have_not_ended():
    for said, word in (("waiting", "queued"), ("held", "held"), ("suspended", "suspended"), ("unknown", "running")):
        assert state_word("running", Standing(said)) == word
    assert state_word("failed", Standing("held")) == "failed"
    assert state_word("queued", None) == "queued"


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_nobody_is_asked_about_a_run_that_has_ended_where_machines_share_files(folder, monkeypatch, backend):
    folder.plan.write_text(json.dumps({"backend": backend}))
    monkeypatch.setenv("PATH", "")  # a question would be an answer: unknown
    ended = RunState(state="finished", phases=[Phase("train", NOW)])
    assert stand(folder, ended) == (ended, None)
