from __future__ import annotations

from cordee.telemetry.node import name_cap
from cordee.telemetry.node.name_cap import NameCap


def test_names_after_the_first_ones_of_a_rank_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(name_cap, "MOST_RANK_NAMES", 3)
    cap = NameCap()
    events = [(at, 0.0, at, {f"name-{at}": 1.0, "loss": 2.0}) for at in range(5)]
    kept = cap.keep(0, events)
    assert [event[3] for event in kept] == [
        {"name-0": 1.0, "loss": 2.0},
        {"name-1": 1.0, "loss": 2.0},
        *[{"loss": 2.0}] * 3,
    ]
    assert cap.left_out == {0: 3}
    assert cap.keep(1, events[:1]) == events[:1]


def test_an_event_of_which_nothing_may_stay_is_left_out_whole(monkeypatch):
    monkeypatch.setattr(name_cap, "MOST_RANK_NAMES", 0)
    cap = NameCap()
    assert cap.keep(0, [(0, 0.0, None, {"a": 1.0})]) == []
    assert cap.left_out == {0: 1}
