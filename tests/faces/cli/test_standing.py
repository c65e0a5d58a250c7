"""What commands say of where a run stands."""

from __future__ import annotations

import pytest

from cordee.faces.cli.scheduler_state import timely, words
from cordee.job.submit import Standing
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
        (Standing("gone", None, "it was never placed"), "was never placed; `cordee resume` submits it"),
    ],
)
def test_a_standing_is_said_with_its_age_when_it_is_old(standing, said):
    assert words(standing, NOW) == said


def state(name: str, phase: str, seconds_ago: float) -> RunState:
    return RunState(state=name, phases=[Phase(phase, NOW - seconds_ago)])


def test_an_answer_from_before_the_segment_ended_is_none():
    before = Standing("running", "12", at=NOW - 10)
    assert timely(before, state("queued", "queue", 5)).state == "unknown"
    assert timely(before, state("queued", "queue", 20)) == before


def test_a_run_that_began_since_the_answer_does_not_wait():
    waited = Standing("waiting", "12", "Priority", at=NOW - 10)
    assert timely(waited, state("running", "train", 5)).state == "running"
    assert timely(waited, state("queued", "queue", 20)) == waited


def test_a_job_that_is_gone_stays_gone():
    gone = Standing("gone", "12", "FAILED", at=NOW - 10)
    assert timely(gone, state("queued", "queue", 5)) == gone
