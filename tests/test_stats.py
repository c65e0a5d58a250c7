"""Statistics that a few bad peers cannot bend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordee.core.stats import (
    centre_and_spread,
    finite_document,
    finite_values,
    mad,
    median,
    outliers,
    outliers_among_peers,
    peers_of,
    quantile,
    robust_z,
)

NAN = float("nan")


def test_median_mad_and_quantile_leave_out_what_was_not_measured() -> None:
    assert median([3.0, NAN, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5
    assert mad([1.0, 2.0, 3.0, NAN, 100.0]) == 1.0
    assert quantile([0.0, 10.0, NAN, 20.0], 0.75) == 15.0
    assert quantile([7.0], 0.3) == 7.0


def test_the_spread_of_an_array_is_not_bent_by_one_value() -> None:
    assert centre_and_spread(np.array([1.0, 2.0, 3.0, 100.0, 2.0])) == (2.0, pytest.approx(1.4826))


@pytest.mark.parametrize("function", [median, mad, lambda values: quantile(values, 0.5)])
def test_no_values_are_an_error(function) -> None:
    with pytest.raises(ValueError, match="value"):
        function([NAN])


def test_one_slow_node_is_found_and_its_ratio_told() -> None:
    times = {f"n{index}": 100.0 + index % 3 for index in range(16)} | {"n7": 160.0, "n9": NAN}
    found = outliers(times, side="high")
    assert list(found) == ["n7"]
    assert found["n7"].ratio == pytest.approx(160 / 101)
    assert outliers(times, side="low") == {}


def test_a_tiny_difference_among_equal_peers_blames_nobody() -> None:
    assert outliers({index: 100.0 + 0.001 * index for index in range(10)} | {10: 100.5}) == {}


def test_a_difference_among_mostly_identical_values_is_found() -> None:
    assert list(outliers(dict.fromkeys(range(10), 5.0) | {3: 9.0})) == [3]


def test_one_who_has_errors_among_many_who_have_none_is_found() -> None:
    assert list(outliers(dict.fromkeys(range(40), 0.0) | {5: 12.0})) == [5]


def test_few_peers_blame_nobody() -> None:
    assert outliers({"a": 1.0, "b": 1.0, "c": 9.0}) == {}


def test_nobody_is_blamed_when_a_third_would_be() -> None:
    values = dict.fromkeys(range(12), 100.0) | dict.fromkeys(range(4), 300.0)
    assert outliers(values) == {}
    assert list(outliers(values | {0: 100.0, 1: 100.0})) == [2, 3]


def test_noise_that_each_value_is_known_to_have_excuses_a_difference() -> None:
    values = dict.fromkeys(range(8), 0.5) | {8: 0.6}
    assert list(outliers(values, noise=0.01)) == [8]
    assert outliers(values, noise=0.05) == {}
    assert outliers(values, apart=0.2) == {}


def test_only_those_at_the_same_place_are_peers() -> None:
    places = {rank: {"dp": rank // 4, "pp": rank % 4} for rank in range(32)}
    # Stages differ in work, which blames nobody; rank 9 differs from its own stage.
    values = {rank: float(rank % 4) for rank in places} | {9: 1.5}
    found = outliers_among_peers(values, peers_of(places), side="high", noise=0.01)
    assert list(found) == [9]
    assert found[9].median == 1.0
    assert outliers_among_peers(values, {}, side="high", z=3, noise=0.01) == {}


def test_shards_of_one_layer_are_peers_where_copies_are_few_and_stages_never_are() -> None:
    two_copies = {rank: {"dp": rank // 8, "pp": rank // 4 % 2, "tp": rank % 4} for rank in range(16)}
    groups = peers_of(two_copies)
    assert {rank for rank in groups if groups[rank] == groups[0]} == {0, 1, 2, 3, 8, 9, 10, 11}
    four_copies = {rank: {"dp": rank // 4, "tp": rank % 4} for rank in range(16)}
    assert {rank for rank, group in peers_of(four_copies).items() if group == peers_of(four_copies)[1]} == {1, 5, 9, 13}
    assert peers_of({}) == {}


def test_in_each_group_nobody_is_blamed_when_a_third_would_be() -> None:
    values = {rank: 2.0 if rank in (0, 4, 5, 8) else 1.0 for rank in range(12)} | {13: NAN}
    assert sorted(outliers_among_peers(values, {rank: rank // 4 for rank in values}, noise=0.01)) == [0, 8]
    assert outliers_among_peers({0: 1.0, 1: 9.0}, {}) == {}


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match="high, low or both"):
        outliers({}, side="up")


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_scores_are_finite_and_the_median_scores_zero(values: list[float]) -> None:
    scores = robust_z([*values, NAN])
    assert all(math.isfinite(score) for score in scores[:-1])
    assert math.isnan(scores[-1])
    assert abs(median(scores)) < 1e-6 or len(values) % 2 == 0


def test_what_json_cannot_hold_is_nothing() -> None:
    assert finite_values([1.5, NAN, math.inf, -math.inf]) == [1.5, None, None, None]


def test_a_document_without_such_numbers_is_left_as_it_is_and_others_become_null() -> None:
    assert finite_document({1: (NAN, {"a": math.inf}), "b": [1, True, None, "text", 2.5]}) == {
        "1": [None, {"a": None}],
        "b": [1, True, None, "text", 2.5],
    }
