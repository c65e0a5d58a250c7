"""Whose a run is: claims, one after the other, and an end that is decided once."""

from __future__ import annotations

import shutil

from cordee.control.supervisor.ownership import Ownership


def test_of_two_claims_one_always_knows_of_the_other_when_the_older_one_ends_the_run(tmp_path):
    older, newer, newest = (Ownership(tmp_path / "epochs", lambda owner: False) for _ in range(3))
    older.claim()
    end = {"state": "finished", "exit_code": 0, "reason": "finished", "text": "all ranks exited with code 0"}
    assert older.decide(end) == "ours"
    newer.claim()
    assert newer.decided(since=1) == end
    assert older.decide(end) == "newer"
    newest.claim()  # after one that has led the run
    assert newest.decided(since=2) is None


def test_an_end_that_cannot_be_written_is_not_decided(tmp_path):
    ownership = Ownership(tmp_path / "epochs")
    ownership.claim()
    shutil.rmtree(tmp_path / "epochs" / "1")
    assert ownership.decide({}) == "gone"
    (tmp_path / "epochs" / "1").write_text("in its place")
    assert ownership.decide({}) == "unseen"
