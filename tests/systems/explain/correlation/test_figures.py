"""Which series moved with another one, and that chance is not told as one that did."""

from __future__ import annotations

import numpy as np
import pytest

from cordee.systems.explain.correlation.figures import lagged, least_z, moved, step_seconds

ABOUT = ("node", "load", "")
N = 240


def smooth(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Return noise whose neighbours are alike, as metrics' are."""
    values = random.normal(size=shape)
    for at in range(1, shape[0]):
        values[at] = 0.8 * values[at - 1] + 0.6 * values[at]
    return values


def judged(target, values, most_lag=12):
    found = lagged(target, values, most_lag)
    return found, moved(found, list(range(values.shape[1])), least_z(values.size // N * (2 * most_lag + 1)), 5.0, ABOUT)


def test_the_device_that_moved_first_is_named_with_its_lead():
    random = np.random.default_rng(1)
    cause = smooth(random, N + 20)
    values = smooth(random, N, 50)
    values[:, 7] = cause[20:]
    target = 1.0 + 0.1 * cause[17 : N + 17] + 0.02 * random.normal(size=N)  # three windows later
    _, one = judged(target, values)
    assert one is not None
    assert [device for device, _ in one.strongest] == [7]
    assert (one.devices, one.of, one.lag_s) == (1, 50, 15.0)
    assert one.strength > 0.9


def test_what_falls_where_steps_take_longer_has_a_minus():
    random = np.random.default_rng(2)
    target = smooth(random, N)
    _, one = judged(target, -target[:, None] + 0.1 * random.normal(size=(N, 4)))
    assert one is not None
    assert one.strength < -0.9
    assert (one.devices, one.lag_s) == (4, 0.0)


def test_chance_finds_nothing_in_a_hundred_searches():
    random = np.random.default_rng(3)
    told = [judged(smooth(random, N), smooth(random, N, 40))[1] for _ in range(100)]
    assert sum(one is not None for one in told) <= 2


@pytest.mark.parametrize("damage", [np.nan, np.inf])
def test_gaps_and_what_never_changes_say_nothing(damage):
    random = np.random.default_rng(4)
    target = smooth(random, N)
    values = np.repeat(target[:, None], 3, axis=1)
    values[: N // 2, 0] = damage
    values[:, 1] = 5.0
    found, one = judged(target, values)
    assert found.z[1] == 0.0
    assert one is not None
    assert [device for device, _ in one.strongest] == [2]


def test_a_single_peak_of_both_is_no_correlation():
    random = np.random.default_rng(5)
    target, values = random.normal(size=N), random.normal(size=(N, 1))
    target[100], values[100, 0] = 1000.0, 1000.0
    assert judged(target, values)[1] is None


def test_the_time_of_a_step_is_the_ranks_median_and_restarts_count_for_nothing():
    rows = [(1, rank, step, 100.0 + step) for rank in range(3) for step in range(10)]
    rows += [(1, 3, step, 100.0 + 9 * step) for step in range(2)]
    rows += [(2, rank, step, 500.0 + 2 * step) for rank in range(3) for step in range(5, 10)]
    table = np.array(rows, dtype=[("attempt", "i4"), ("rank", "i4"), ("step", "i8"), ("time", "f8")])
    found = step_seconds(table, 100.0, 5.0, 85)
    assert list(found[:2]) == [1.0, 1.0]
    assert np.isnan(found[2:80]).all()
    assert list(np.unique(found[82:84])) == [2.0]
