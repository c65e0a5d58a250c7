"""What the journal says of samples: once, missed, repeated, undone, or not known."""

from __future__ import annotations

import pytest

from cordee.runs.state import replay
from cordee.systems.data.account import account_findings, account_of


class Told:
    """A journal of attempts that read data."""

    def __init__(self):
        self.events = []

    def _add(self, event, **fields):
        said = {"event": event, "epoch": 1, "seq": len(self.events), "writer": "supervisor-1"}
        self.events.append({**said, "time": "2026-01-01T00:00:00Z", "mono": float(len(self.events)), **fields})

    def attempt(self, number, resume_step=None, ranks=2):
        name = None if resume_step is None else f"step-{resume_step}"
        self._add(
            "attempt_started", attempt=number, world_size=ranks, nodes=[], checkpoint=name, resume_step=resume_step
        )
        return self

    def read(
        self, attempt, begin, position, saves=(), readers=2, given=None, name="corpus", size=100, dropped=0, turn=1
    ):
        told = [dict(zip(("position", "step", "readers", "given"), save, strict=True)) for save in saves]
        begins = [] if begin is None else begin if isinstance(begin, list) else [begin]
        fields = {"size": size, "begin": begins, "position": position, "readers": readers, "dropped": dropped}
        self._add("data_read", attempt=attempt, set=name, turn=turn, given=given, saves=told, **fields)
        return self

    @property
    def accounts(self):
        return account_of(replay(self.events))

    @property
    def account(self):
        (account,) = self.accounts
        return account


def test_a_training_without_restarts_is_given_every_sample_once():
    account = Told().attempt(1).read(1, 0, 40, [(40, 3, 2, 40)]).read(1, 0, 123).account
    assert (account.verdict, account.samples, account.rolled_back) == ("once", 123, 0)
    assert account.text() == "123 samples, 1.23 epochs, each exactly once in its epoch; 1 attempt with 2 ranks"


def test_what_was_given_after_the_checkpoint_is_undone_and_given_again_by_other_ranks():
    told = Told().attempt(1, ranks=4).read(1, 0, 75, [(60, 5, 4, 60)], readers=4)
    account = told.attempt(2, resume_step=5).read(2, 60, 100, readers=2).account
    assert [(part.attempt, part.ranks, part.begin, part.end) for part in account.stretches] == [
        (1, 4, 0, 60),
        (2, 2, 60, 100),
    ]
    assert (account.verdict, account.samples, account.rolled_back) == ("once", 100, 15)
    assert account.text() == (
        "100 samples, 1 epoch, each exactly once; 2 attempts with 4 and 2 ranks; "
        "15 were undone by restarts and given again"
    )
    assert account.document()["verdict"] == "once"


def test_a_restart_without_a_checkpoint_begins_anew_and_undoes_everything():
    account = Told().attempt(1).read(1, 0, 75).attempt(2).read(2, 0, 30).account
    assert (account.verdict, account.samples, account.rolled_back) == ("once", 30, 75)
    assert [part.attempt for part in account.stretches] == [2]


def test_an_older_checkpoint_undoes_several_attempts():
    told = Told().attempt(1).read(1, 0, 50, [(20, 1, 2, 20), (40, 3, 2, 40)])
    told.attempt(2, resume_step=3).read(2, 40, 70, [(60, 5, 2, 20)])
    account = told.attempt(3, resume_step=5).read(3, 20, 90).account  # what the newer ones held could not be loaded
    assert [(part.attempt, part.begin, part.end) for part in account.stretches] == [(1, 0, 20), (3, 20, 90)]
    assert (account.verdict, account.rolled_back) == ("once", 10 + 20 + 30)


def test_a_position_that_is_not_saved_with_the_checkpoint_repeats_samples():
    account = Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 40)]).attempt(2, 3).read(2, 0, 90).account
    assert account.verdict == "wrong"
    assert account.repeated == [(0, 40)]
    assert "40 (positions 0 to 39) trained on twice" in account.text()


def test_samples_that_were_not_trained_on_once_are_an_error_that_says_what_to_do():
    told = Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 40)]).read(1, 0, 50, name="other")
    assert account_findings(replay(told.events)) == []
    (finding,) = account_findings(replay(told.attempt(2, 3).read(2, 45, 90).events))
    assert (finding.severity, finding.rule, finding.given) == (
        "error",
        "samples-not-once",
        {"missed": [(40, 45)], "repeated": []},
    )
    assert "corpus" in finding.text
    assert "data=" in (finding.next or "")


def test_a_position_beyond_the_checkpoints_misses_samples():
    account = Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 40)]).attempt(2, 3).read(2, 45, 90).account
    assert (account.verdict, account.missed) == ("wrong", [(40, 45)])


def test_without_any_saved_position_nothing_is_claimed():
    account = Told().attempt(1).read(1, 0, 50).attempt(2, resume_step=3).read(2, 0, 90).account
    assert account.verdict == "unknown"
    assert "cordee.checkpointer(..., data=...)" in account.text()


def test_ranks_that_count_less_than_the_positions_say_leave_a_doubt():
    assert Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 39)]).account.verdict == "unknown"
    assert Told().attempt(1).read(1, 0, 50, [(40, 3, 1, 20)]).account.verdict == "once"  # one rank has not said it yet
    assert Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 80)]).account.verdict == "once"  # two share each sample
    assert Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 60)]).account.verdict == "unknown"


def test_a_position_that_is_loaded_in_the_middle_of_an_attempt_undoes_what_came_after_it():
    told = Told().attempt(1).read(1, 0, 50, [(20, 1, 2, 20), (40, 3, 2, 40)])
    account = told.read(1, 20, 90, turn=2).account
    assert [(part.attempt, part.begin, part.end) for part in account.stretches] == [(1, 0, 20), (1, 20, 90)]
    assert (account.verdict, account.samples, account.rolled_back) == ("once", 90, 30)
    assert "1 attempt with 2 ranks" in account.text()


def test_ranks_that_begin_apart_leave_a_doubt():
    account = Told().attempt(1).read(1, [0, 8], 50).account
    assert account.verdict == "unknown"
    assert "different positions: 0 and 8" in account.text()


def test_an_attempt_that_ended_before_its_first_batch_changes_nothing():
    told = Told().attempt(1).read(1, 0, 50, [(40, 3, 2, 40)]).attempt(2, 3).read(2, None, 40).attempt(3, 3)
    account = told.read(3, 40, 90).account
    assert (account.verdict, account.samples, account.rolled_back) == ("once", 90, 10)
    assert [part.attempt for part in account.stretches] == [1, 3]


@pytest.mark.parametrize("size", [None, 100])
@pytest.mark.usefixtures("real")
def test_every_set_has_an_account_of_its_own(size):
    told = Told().attempt(1).read(1, 0, 50, name="a", size=size).read(1, 7, 9, name="b", size=size, dropped=3)
    first, second = told.accounts
    assert (first.name, first.samples, second.name, second.samples) == ("a", 50, "b", 2)
    assert "3 left out" in second.text()
    assert (first.epochs is None) == (size is None)
    assert account_of(replay([])) == []
