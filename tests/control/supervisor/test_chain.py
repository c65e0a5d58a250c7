"""Whether a run goes on in another segment, without a clock, a process or a scheduler."""

from __future__ import annotations

import pytest

from cordee.backends.slurm.node.job import fate_of
from cordee.control.supervisor.decisions.chain import Chain
from cordee.control.supervisor.decisions.outcomes import SegmentOver
from cordee.runs.plan import RunSegment
from cordee.runs.state import RunState, SegmentState

POLICY = RunSegment("requeue", limit_s=100.0, grace_s=10.0, max_segments=3)


def ended(*segments: tuple[str, bool]) -> RunState:
    return RunState(
        chain=[{"segment": i, "reason": why, "progress": moved} for i, (why, moved) in enumerate(segments, 1)]
    )


def refusal(why: str, moved: bool, before: RunState, *, possible: bool = True, **policy: object) -> str | None:
    chain = Chain(POLICY._replace(**policy), possible=possible)
    found = chain.refusal(SegmentOver(why), 2, moved, before)
    return found.reason if found else None


def test_a_segment_at_its_limit_with_a_new_checkpoint_has_a_next():
    assert refusal("time_limit", True, ended(("time_limit", True))) is None


def test_a_segment_at_its_limit_without_one_ends_the_chain():
    assert refusal("time_limit", False, ended()) == "no_progress"


def test_the_time_that_was_asked_for_is_not_exceeded():
    assert refusal("time_limit", True, ended(("time_limit", True), ("time_limit", True))) == "time_limit"


def test_only_whole_segments_count_against_the_time():
    before = ended(("preempted", True), ("lost", True), ("time_limit", True))
    assert refusal("time_limit", True, before) is None


def test_a_run_of_one_segment_ends_at_its_limit():
    assert refusal("time_limit", True, ended(), max_segments=1) == "time_limit"


@pytest.mark.parametrize("why", ["preempted", "node_lost", "no_agents", "killed"])
def test_where_queueing_again_is_forbidden_the_run_ends(why):
    assert refusal(why, True, ended(), next="forbidden") == why


def test_a_job_that_slurm_requeued_by_itself_goes_on_even_there():
    assert refusal("requeued", False, ended(), next="forbidden") is None


def test_preemption_never_ends_a_run():
    assert refusal("preempted", False, ended(*[("preempted", False)] * 50)) is None


def test_faults_without_progress_end_it_in_the_end():
    assert refusal("node_lost", False, ended(*[("node_lost", False)] * 4)) is None
    assert refusal("node_lost", False, ended(*[("lost", False)] * 5)) == "no_progress"
    assert refusal("node_lost", False, ended(("lost", True), *[("lost", False)] * 4)) is None


def test_a_segment_that_lasted_as_long_as_the_job_says_has_made_progress_without_a_checkpoint():
    chain = Chain(POLICY, possible=True, forget_s=300.0)
    assert chain.refusal(SegmentOver("time_limit"), 2, False, ended(), lasted_s=300.0) is None
    assert chain.refusal(SegmentOver("time_limit"), 2, False, ended(), lasted_s=299.0) is not None
    before = ended(*[("lost", False)] * 5)
    assert chain.refusal(SegmentOver("node_lost"), 6, False, before, lasted_s=10.0) is not None
    before.segment_states = [SegmentState(number, started_at=0.0, ended_at=400.0) for number in range(1, 6)]
    assert chain.refusal(SegmentOver("node_lost"), 6, False, before, lasted_s=10.0) is None


@pytest.mark.parametrize(
    ("record", "fate"),
    [
        (None, "unknown"),
        ({"JobState": "RUNNING"}, "running"),
        ({"JobState": "RUNNING", "PreemptTime": "2026-11-21T10:00:00"}, "preempted"),
        ({"JobState": "COMPLETING", "Reason": "None", "ExitCode": "0:0", "Restarts": "1"}, "requeued"),
        ({"JobState": "COMPLETING", "Reason": "None", "ExitCode": "0:0", "Restarts": "0"}, "cancelled"),
        ({"JobState": "COMPLETING", "Reason": "JobLaunchFailure", "ExitCode": "0:9", "Restarts": "0"}, "killed"),
        ({"JobState": "COMPLETING", "Reason": "TimeLimit", "ExitCode": "0:0"}, "time_limit"),
        ({"JobState": "TIMEOUT", "Reason": "TimeLimit"}, "time_limit"),
        ({"JobState": "PENDING", "Reason": "BeginTime"}, "requeued"),
        ({"JobState": "CANCELLED"}, "cancelled"),
        ({"JobState": "FAILED", "Reason": "JobLaunchFailure", "ExitCode": "0:9"}, "killed"),
        ({"JobState": "FAILED", "Reason": "NonZeroExitCode", "ExitCode": "1:0"}, "ended"),
        ({"JobState": "COMPLETING", "Reason": "NonZeroExitCode", "ExitCode": "1:0"}, "ended"),
        ({"JobState": "COMPLETED", "ExitCode": "0:0"}, "ended"),
        ({"JobState": "NODE_FAIL"}, "node_lost"),
        ({"JobState": "SOMETHING_NEW"}, "unknown"),
    ],
)
def test_what_becomes_of_an_allocation_is_read_from_what_slurm_shows(record, fate):
    assert fate_of(record, 0) == fate
