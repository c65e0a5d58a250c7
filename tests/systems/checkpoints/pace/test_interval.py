"""How often to save, by what saves cost and how often runs fail."""

from __future__ import annotations

import pytest

from cordee.systems.checkpoints.pace import storage_view
from cordee.systems.checkpoints.pace.interval import FailureRate, beside_advice, best_interval_s, interval_advice


def test_the_best_interval_is_young_and_dalys():
    assert best_interval_s(30.0, 24 * 3600.0) == pytest.approx(2276.8, abs=0.1)


def test_an_interval_that_is_far_from_the_best_is_told(training):
    training.train(100, save_s=2.0, save_every=20)
    view = storage_view(training.read())
    advice = interval_advice(view, FailureRate(4, 4 * 1e6), 2)
    assert advice is not None
    assert advice.rule == "checkpoint-interval"
    assert "a save costs 2" in advice.text
    best = best_interval_s(2.0, 1e6 / 2)
    assert float(advice.next.split('"')[1].rstrip("s")) == pytest.approx(best, rel=0.1)


def test_without_enough_failures_and_near_the_best_nothing_is_said(training):
    training.train(100, save_s=2.0, save_every=20)
    view = storage_view(training.read())
    assert interval_advice(view, FailureRate(2, 1e9), 2) is None
    assert interval_advice(view, FailureRate(3, 3 * 22.0**2 / 4), 1) is None


@pytest.mark.parametrize(("save_s", "told"), [(6.0, True), (0.01, False)])
def test_a_training_that_waited_much_for_its_saves_is_told_to_save_beside_it(training, save_s, told):
    training.train(100, save_s=save_s, save_every=20)
    advice = beside_advice(storage_view(training.read()))
    assert (advice is not None) == told
    if advice is not None:
        assert advice.rule == "checkpoint-waits"
        assert "asynchronous = true" in advice.next
