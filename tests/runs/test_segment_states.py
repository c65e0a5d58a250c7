"""The segments of a run, replayed: who waited where for how long, and why each ended."""

from __future__ import annotations

from cordee.core.units import utc_text
from cordee.runs.state import replay
from cordee.telemetry.store.phases import lost_time, phase_shares, segment_times

T0 = 1_700_000_000.0
RANKS = [{"node": "n1", "ranks": [0]}]


class Journal:
    """Events at seconds after T0."""

    def __init__(self) -> None:
        self.events: list[dict] = []

    def at(self, second: float, event: str, writer: str = "supervisor-1", **more: object) -> Journal:
        mono = None if writer == "client" else second
        self.events.append({"event": event, "time": utc_text(T0 + second), "mono": mono, "writer": writer, **more})
        return self

    def submitted(self) -> Journal:
        return self.at(0, "submitted", "client").at(1, "placed", "client", job="7")

    def trains(self, second: float, segment: int, epoch: int, **more: object) -> Journal:
        """A supervisor starts, its node connects and its rank runs, in three seconds."""
        writer = f"supervisor-{epoch}"
        self.at(second, "supervisor_started", writer, epoch=epoch, segment=segment, job="7", **more)
        self.at(second + 1, "node_connected", writer, node="n1")
        self.at(second + 2, "attempt_started", writer, attempt=epoch, world_size=1, nodes=RANKS)
        return self.at(second + 3, "rank_started", writer, attempt=epoch, rank=0, node="n1", pid=1)

    def saves(self, second: float, epoch: int, reason: str = "time_limit", how: str = "requeue") -> Journal:
        writer = f"supervisor-{epoch}"
        self.at(second, "attempt_ended", writer, attempt=epoch, outcome="segment", reason="near", progress=True)
        ended = {"segment": 1, "reason": reason, "checkpoint": "step-5", "progress": True, "next": how}
        return self.at(second, "segment_ended", writer, **ended)

    @property
    def state(self):
        return replay(self.events, "t")


def test_waiting_for_the_next_segment_is_queue_time_of_that_segment():
    journal = Journal().submitted().trains(10, 1, 1, partition="debug").saves(50, 1)
    journal.at(51, "continued", job="7", how="requeue").trains(110, 2, 2)
    journal.at(150, "ended", "supervisor-2", state="finished", exit_code=0, reason="finished")
    first, second = segment_times(journal.state)
    assert (first.queue_s, first.held_s, first.train_s) == (10, 40, 37)
    assert (second.queue_s, second.held_s, second.train_s) == (60, 40, 37)
    assert (first.segment.job, first.segment.partition, first.segment.nodes) == ("7", "debug", ["n1"])
    assert (first.segment.reason, first.segment.checkpoint, first.segment.next) == ("time_limit", "step-5", "requeue")
    assert (second.segment.number, second.segment.reason, second.segment.ended_at) == (2, "finished", T0 + 150)
    assert {share.name: share.seconds for share in phase_shares(journal.state)}["train"] == 74
    assert lost_time(journal.state, {}).queue_s == 60


def test_a_segment_that_was_lost_ended_with_its_last_sign_of_life():
    journal = Journal().submitted().trains(10, 1, 1)
    seen = utc_text(T0 + 40)
    lost = {"segment": 1, "reason": "lost", "checkpoint": None, "progress": False, "next": "scheduler", "seen": seen}
    journal.at(300, "segment_ended", "supervisor-2", **lost)
    journal.trains(300, 2, 2)
    state = journal.state
    first, second = segment_times(state, T0 + 310)
    assert (first.train_s, second.queue_s, second.train_s) == (27, 260, 7)
    assert state.attempts[0]["outcome"] == "segment"
    assert state.attempts[0]["ended_at"] == T0 + 40


def test_a_sign_of_life_before_the_phase_began_does_not_turn_time_back():
    journal = Journal().submitted().trains(10, 1, 1)
    lost = {"segment": 1, "reason": "lost", "checkpoint": None, "progress": False, "next": "scheduler"}
    state = journal.at(300, "segment_ended", "supervisor-2", **lost, seen=utc_text(T0 - 5)).state
    assert [phase.end >= phase.start for phase in state.phases[:-1]] == [True] * 4


def test_an_allocation_began_when_its_batch_script_did():
    state = Journal().submitted().trains(10, 1, 1, began=T0 + 8.5).state
    assert segment_times(state, T0 + 20)[0].queue_s == 8.5
    assert Journal().submitted().trains(10, 1, 1, began=T0 - 3).state.segment_states[0].started_at == T0


def test_a_supervisor_that_finishes_an_ended_segment_does_not_begin_it_again():
    journal = Journal().submitted().trains(10, 1, 1).saves(50, 1)
    journal.at(52, "supervisor_started", "supervisor-2", epoch=2, segment=1, job="7")
    journal.at(53, "continued", "supervisor-2", job="7", how="requeue")
    state = journal.state
    assert (state.state, state.epoch, state.segments, len(state.segment_states)) == ("queued", 2, 1, 2)
    assert [phase.name for phase in state.phases][-1] == "queue"
    assert journal.trains(110, 2, 3).state.state == "running"


def test_a_run_that_waits_has_a_segment_without_a_beginning():
    [waiting] = segment_times(Journal().submitted().state, T0 + 30)
    assert (waiting.queue_s, waiting.held_s, waiting.segment.started_at, waiting.segment.job) == (30, 0, None, "7")


def test_a_resumed_run_keeps_what_was_before():
    journal = Journal().submitted().trains(10, 1, 1)
    journal.at(50, "ended", state="failed", exit_code=1, reason="retries", text="")
    journal.at(80, "resume_requested", "client").at(81, "placed", "client", job="8").trains(90, 2, 2)
    first, second = segment_times(journal.state, T0 + 100)
    assert (first.segment.reason, second.segment.number, second.queue_s) == ("retries", 2, 10)


def test_a_segment_that_never_began_goes_on_waiting_when_its_run_is_resumed():
    journal = Journal().submitted().at(30, "ended", "client", state="cancelled", exit_code=1, reason="cancelled")
    journal.at(100, "resume_requested", "client").at(101, "placed", "client", job="8").trains(120, 1, 1)
    (only,) = segment_times(journal.state, T0 + 130)
    assert (only.queue_s, only.segment.number, only.segment.job, only.segment.reason) == (50, 1, "7", "")


def test_a_job_that_was_removed_while_it_ran_saved_for_nobody():
    """It takes the removal for an eviction, and says what is to follow."""
    journal = Journal().submitted().trains(10, 1, 1).at(40, "checkpoint_seen", name="step-5", step=5)
    journal.saves(50, 1, "preempted").at(51, "continued", job="7", how="requeue")
    cut = {"state": "cancelled", "exit_code": 1, "reason": "cancelled", "cut_off": True, "checkpoint": None}
    state = journal.at(90, "ended", "client", **cut, seen=utc_text(T0 + 50)).state
    (only,) = segment_times(state, T0 + 100)
    assert (only.held_s, only.segment.reason, only.segment.next, only.segment.checkpoint) == (40, "cancelled", "", None)
    assert (state.checkpoint, state.chain, state.ended_at) == (None, [], T0 + 50)
    waited = journal.at(95, "resume_requested", "client").at(96, "placed", "client", job="8").state
    assert [segment.number for segment in waited.segment_states] == [1, 2]


def test_a_job_that_was_removed_long_after_it_was_evicted_keeps_that_segment():
    """It had just been matched again, and was still on its way to the machine."""
    journal = Journal().submitted().trains(10, 1, 1).saves(50, 1, "preempted")
    cut = {"state": "cancelled", "exit_code": 1, "reason": "cancelled", "cut_off": True}
    first, second = segment_times(journal.at(9000, "ended", "client", **cut, seen=utc_text(T0 + 9000)).state)
    assert (first.segment.reason, first.held_s, second.segment.reason, second.queue_s) == (
        "preempted",
        40,
        "cancelled",
        8950,
    )


def test_an_end_that_did_not_come_home_is_told_as_that():
    journal = Journal().submitted().trains(10, 1, 1)
    journal.at(50, "ended", state="finished", exit_code=0, reason="finished", text="")
    journal.at(90, "resume_requested", "client-n1", by="the scheduler", reason="not_home").trains(92, 2, 2)
    first, second = segment_times(journal.state, T0 + 100)
    assert (first.held_s, first.segment.reason, second.segment.number, second.queue_s) == (40, "not_home", 2, 2)
