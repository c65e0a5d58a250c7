"""The decisions after a failure, without a clock or a process."""

from __future__ import annotations

import pytest

from cordee.control.supervisor.decisions.restart import (
    MOST_LOSSES,
    CheckpointDoubts,
    Failure,
    RestartCounter,
    complains_of_peer,
)
from cordee.control.supervisor.ownership import Ownership
from cordee.core.errors import OwnershipError
from cordee.runs.checkpoint import Checkpoint, Doubt


def failed(rank=0, code=1, signal=None, message="ValueError: bad"):
    return Failure("rank", rank, f"local-{rank}", code, signal, "exited", message)


def test_the_first_restart_is_at_once_and_later_ones_wait_twice_as_long():
    policy = RestartCounter(retries=5, backoff_s=1.0)
    delays = [policy.decide(failed(code=None, signal="SIGKILL"), False).delay_s for _ in range(5)]
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_retries_count_failures_without_progress_only():
    policy = RestartCounter(retries=1, backoff_s=0.0)
    killed = failed(code=None, signal="SIGKILL")
    assert policy.decide(killed, False).restart is True
    assert policy.decide(killed, True).restart is True
    last = policy.decide(killed, False)
    assert (last.restart, last.reason) == (False, "retries")


LOST = Failure("node_lost", node="n", message="its agent is gone")


def test_lost_nodes_use_up_no_retries_and_are_no_crash_loop():
    policy = RestartCounter(retries=1, backoff_s=0.0)
    failure = failed(code=None, signal="SIGKILL")
    assert policy.decide(failure, False).restart
    decisions = [policy.decide(LOST, False) for _ in range(5)]
    assert all(decision.restart and not decision.crash_loop for decision in decisions)
    assert {decision.failures_without_progress for decision in decisions} == {1}
    assert policy.decide(failure, False).reason == "retries"


def test_losses_in_a_row_without_progress_are_answered_with_longer_pauses_and_at_last_with_an_end():
    policy = RestartCounter(retries=0, backoff_s=1.0)
    decisions = [policy.decide(LOST, False) for _ in range(MOST_LOSSES)]
    assert [decision.delay_s for decision in decisions[:-1]] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    last = decisions[-1]
    assert (last.restart, last.reason, last.crash_loop) == (False, "node_losses", False)
    assert last.text.startswith("nodes were lost 10 times in a row without a new checkpoint; the last: node n was lost")


def test_progress_forgives_the_losses_before_it():
    policy = RestartCounter(retries=0, backoff_s=1.0)
    assert all(policy.decide(LOST, number % 3 == 0).restart for number in range(50))


def test_the_same_message_with_other_numbers_is_the_same_failure():
    policy = RestartCounter(retries=9, backoff_s=0.0)
    policy.decide(failed(message="KeyError at step 17, address 0x7f01"), False)
    again = policy.decide(failed(message="KeyError at step 18, address 0x7f99"), False)
    assert (again.restart, again.crash_loop) == (False, True)


def test_a_kill_from_outside_is_never_a_crash_loop():
    policy = RestartCounter(retries=9, backoff_s=0.0)
    assert not any(policy.decide(failed(code=None, signal="SIGKILL"), False).crash_loop for _ in range(5))


def test_another_message_or_progress_breaks_the_loop():
    policy = RestartCounter(retries=9, backoff_s=0.0)
    policy.decide(failed(), False)
    assert policy.decide(failed(message="KeyError: 'x'"), False).restart is True
    assert policy.decide(failed(message="KeyError: 'x'"), True).restart is True


@pytest.mark.parametrize(
    "message", ["train.py: error: unrecognized arguments: --lrr", "[rank{rank}]: cannot open shard {rank}"]
)
def test_the_same_failure_is_known_whichever_rank_says_it(message):
    policy = RestartCounter(retries=9, backoff_s=0.0)
    policy.decide(failed(rank=0, code=2, message=message.format(rank=0)), False)
    again = policy.decide(failed(rank=3, code=2, message=message.format(rank=3)), False)
    assert (again.restart, again.crash_loop) == (False, True)


@pytest.mark.parametrize("message", [None, "RuntimeError: Connection reset by peer"])
def test_what_victims_say_is_the_same_failure_from_the_same_rank_only(message):
    policy = RestartCounter(retries=9, backoff_s=0.0)
    policy.decide(failed(rank=0, message=message), False)
    assert policy.decide(failed(rank=1, message=message), False).restart is True
    assert policy.decide(failed(rank=1, message=message), False).crash_loop is True


@pytest.mark.parametrize(
    ("code", "signal", "message", "expected"),
    [
        (1, None, "RuntimeError: Connection reset by peer", True),
        (None, "SIGABRT", "NCCL error: remote process exited or there was a network error", True),
        (None, "SIGABRT", "free(): invalid pointer", False),
        (None, "SIGSEGV", "Connection closed by peer", False),
        (None, "SIGTERM", None, True),
        (1, None, None, False),
    ],
)
def test_a_victim_is_told_by_what_it_says(code, signal, message, expected):
    assert complains_of_peer(failed(code=code, signal=signal, message=message)) is expected


@pytest.mark.parametrize(("code", "signal", "expected"), [(3, None, 3), (None, "SIGKILL", 137), (None, "SIGSEGV", 139)])
def test_exit_codes_are_those_of_a_shell(code, signal, expected):
    assert failed(code=code, signal=signal).exit_code == expected


def test_epochs_are_claimed_one_after_the_other_and_a_newer_one_wins(tmp_path):
    dead = Ownership(tmp_path / "epochs", alive=lambda owner: False)
    assert dead.claim() == 1
    second = Ownership(tmp_path / "epochs", alive=lambda owner: False)
    assert second.claim() == 2
    assert (dead.look(), second.look()) == ("newer", "ours")
    with pytest.raises(OwnershipError, match="owns this run already"):
        Ownership(tmp_path / "epochs", alive=lambda owner: True).claim()


def test_an_owner_that_died_before_it_wrote_its_name_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("cordee.control.supervisor.ownership._UNWRITTEN_S", 0.05)
    (tmp_path / "epochs" / "4").mkdir(parents=True)
    assert Ownership(tmp_path / "epochs").claim() == 5


def test_a_file_that_was_refused_is_not_loaded_again():
    policy = RestartCounter(retries=9, backoff_s=0.0)
    refused = "cordee.systems.scan.node.load.RefusedFile: /data/a.pt: it is not loaded: it looks up os.system"
    decision = policy.decide(failed(message=refused), False)
    assert (decision.restart, decision.reason) == (False, "refused_file")
    assert "/data/a.pt" in decision.text
    no_memory = "cordee.systems.scan.node.load.RefusedFile: /data/a.pt: it has 9 GB, and the copy does not fit"
    assert policy.decide(failed(message=no_memory), False).restart


C9, C6 = (Checkpoint(f"/c/step-{step}", f"step-{step}", step, step) for step in (9, 6))


class Doubting:
    """Attempts that fail one after the other, and what is doubted then."""

    def __init__(self, known=()):
        self.policy, self.doubts = RestartCounter(retries=9, backoff_s=0.0), CheckpointDoubts(known)

    def fails(self, began_with, failure=None, *, progressed=False, stepped=False):
        failure = failure or failed()
        decision = self.policy.decide(failure, progressed)
        self.doubts.decide(decision, failure, progressed or stepped, began_with, "attempt 2")
        return [(doubt.checkpoint.name, doubt.open) for doubt in self.doubts.known]


def test_a_checkpoint_is_doubted_once_an_attempt_that_began_with_it_failed_before_it_told_a_step():
    run = Doubting()
    assert run.fails(None) == []
    assert run.fails(C9, failed(message="EOFError: cut off")) == [("step-9", True)]
    assert run.doubts.known[0].why == (
        "attempt 2 began with it and failed before it told a step: rank 0 on local-0 exited with code 1: EOFError: cut off"
    )


@pytest.mark.parametrize(
    "failure",
    [
        LOST,
        failed(code=None, signal="SIGKILL"),
        failed(code=None, signal="SIGTERM"),
        failed(message="RuntimeError: Connection closed by peer"),
    ],
)
def test_what_comes_from_outside_of_the_script_raises_no_doubt(failure):
    assert Doubting().fails(C9, failure) == []


def test_an_attempt_that_got_on_raises_no_doubt():
    assert Doubting().fails(C9, progressed=True) == []
    assert Doubting().fails(C9, stepped=True) == []


def test_the_doubt_stays_once_an_attempt_has_got_on_from_an_older_one_and_only_then_another_may_come():
    run = Doubting()
    run.fails(C9)
    assert run.fails(C6, failed(message="OSError: another")) == [("step-9", True)], "one step back, no further"
    assert run.fails(C6, failed(message="KeyError: third"), stepped=True) == [("step-9", False)]
    assert run.fails(C6, failed(message="EOFError: here too")) == [("step-9", False), ("step-6", True)]


def test_where_the_same_failure_comes_from_an_older_one_too_the_newest_is_doubted_no_more():
    run = Doubting()
    run.fails(C9)
    assert run.fails(C6) == []


def test_a_doubt_outlives_its_supervisor_as_does_that_it_is_the_last_step_back():
    told = Doubt(C9, "attempt 2 began with it and failed").document()
    run = Doubting([Doubt.from_document(told)])
    assert run.fails(C6) == [("step-9", True)]
    assert run.fails(C6) == []


def test_a_checkpoint_without_an_older_one_from_which_an_attempt_gets_on_after_all_is_doubted_no_more():
    run = Doubting()
    run.fails(C9)
    assert run.fails(C9, failed(message="OSError: another"), stepped=True) == []
