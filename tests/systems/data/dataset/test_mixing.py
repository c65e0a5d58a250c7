"""Several data sets as one stream."""

from __future__ import annotations

import hashlib

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.loop import Dataset
from cordee.systems.data.node.read.order.mixture import SLOT, Mix, MixedOrder, slot_counts


@pytest.mark.parametrize(
    ("weights", "share"),
    [([0.7, 0.3], 0.7), ([1, 2], 1 / 3), ([3, 1], 0.75), ([0.1, 0.2, 0.7], 0.1), ([5], 1.0)],
)
def test_shares_of_weights_that_people_write_are_exact(weights, share):
    counts = slot_counts(weights)
    assert counts[0] / sum(counts) == share
    assert SLOT / 2 < sum(counts) < SLOT * 2


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=6))
@settings(max_examples=100)
def test_shares_of_any_weights_are_right_to_one_in_a_slot(weights):
    counts = slot_counts(weights)
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count / sum(counts) - weight / sum(weights)) <= 1 / sum(counts)


@pytest.mark.parametrize("weights", [[0.5, 0.0], [1, -1], [float("nan"), 1], ["a", 1], [1, 1e-9]])
def test_a_weight_that_is_none_is_refused(weights):
    with pytest.raises(UsageError, match="weight"):
        slot_counts(weights)


def test_every_set_comes_in_its_own_shuffle_epoch_after_epoch():
    sizes, counts = (500, 90), slot_counts([0.7, 0.3])
    order = MixedOrder(sizes, counts, seed=5, shuffle=True)
    found = order.samples(numpy.arange(sum(counts)))
    first, second = found[found < 500], found[found >= 500] - 500
    assert (len(first), len(second)) == counts
    for begin in range(0, len(first) - 500, 500):
        assert sorted(first[begin : begin + 500].tolist()) == list(range(500))
    for begin in range(0, len(second) - 90, 90):
        assert sorted(second[begin : begin + 90].tolist()) == list(range(90))
    assert first[:500].tolist() != first[500:1000].tolist()
    assert abs(float((found[:1000] < 500).mean()) - 0.7) < 0.1  # mixed well within the slot, too


def test_a_mix_is_a_pure_function_of_the_position():
    order = MixedOrder((500, 90), slot_counts([2, 1]), seed=5, shuffle=True)
    whole = order.samples(numpy.arange(40_000))
    for begin, end in [(0, 7), (16_380, 16_390), (33_000, 40_000)]:
        assert order.samples(numpy.arange(begin, end)).tolist() == whole[begin:end].tolist()
    assert hashlib.sha256(whole.astype("<i8").tobytes()).hexdigest()[:16] == "7361670207f91b7d"


def mix(numbers, batch=50, sizes=(300, 100), weights=(0.7, 0.3), **settings):
    from cordee.systems.data.node.read import dataset as module

    sources = {"web": numbers(sizes[0], "web"), "code": numbers(sizes[1], "code")}
    mixed = Mix(sources, dict(zip(sources, weights, strict=True)), settings.pop("samples_per_epoch", None))
    ds = module.dataset(mixed, batch=batch, **settings)
    assert isinstance(ds, Dataset)
    return ds


def test_a_mix_is_read_like_one_set_and_goes_on_after_a_restart(numbers):
    whole = [key for batch in mix(numbers, seed=2) for key in batch["key"]]
    assert len(whole) == 400
    assert 250 < sum(key.startswith("web") for key in whole) < 310
    assert len(set(whole)) < 400  # 120 of the 100 of code: its second epoch began
    begun = mix(numbers, seed=2)
    loop = iter(begun)
    first = [key for _ in range(3) for key in next(loop)["key"]]
    resumed = mix(numbers, seed=2, rank=0, world=1)
    resumed.load_state_dict(begun.state_dict())
    assert first + [key for batch in resumed for key in batch["key"]] == whole


def test_other_weights_are_another_data_set(numbers):
    one, other = mix(numbers), mix(numbers, weights=(0.6, 0.4))
    with pytest.raises(Exception, match="another data set"):
        other.load_state_dict(one.state_dict())


def test_the_epoch_of_a_mix_can_be_said(numbers):
    ds = mix(numbers, samples_per_epoch=120)
    assert len(ds) == 3
    assert sum(len(batch["key"]) for batch in ds) == 120
    assert (ds.epoch, ds.position) == (1, 0)


def test_the_order_in_which_a_mix_is_written_does_not_matter(numbers):
    a, b = numbers(30, "a"), numbers(40, "b")
    one, other = Mix({"a": a, "b": b}, {"a": 1, "b": 2}), Mix({"b": b, "a": a}, {"b": 2, "a": 1})
    assert one.identity == other.identity
    assert [source.name for source in one.sources] == [source.name for source in other.sources]


def test_a_sample_of_a_mix_is_called_what_its_own_set_calls_it(numbers):
    sources = Mix({"a": numbers(30, "a"), "b": numbers(40, "b")}, {"a": 1, "b": 1})
    assert [sources.describe(number) for number in (0, 29, 30, 69)] == ["a/0", "a/29", "b/0", "b/39"]
    assert [s["key"] for s in sources.read(numpy.array([30, 0, 31, 29]))] == ["b/0", "a/0", "b/1", "a/29"]
    assert sources.counts.samples == 4
