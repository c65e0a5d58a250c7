"""The rest of an epoch as global batches, shared out to ranks."""

from __future__ import annotations

import hashlib

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.order.position import DROP, SHORT, EpochCut, RankShares, SampleOrder, check_cut


@st.composite
def cuts(draw: st.DrawFn) -> EpochCut:
    ranks = draw(st.integers(1, 16))
    size = draw(st.integers(ranks, 400))
    batch = draw(st.integers(ranks, 120))
    last = draw(st.sampled_from([SHORT, DROP])) if batch <= size else SHORT
    return EpochCut(draw(st.integers(0, 3)) * size + draw(st.integers(0, size - 1)), size, batch, ranks, last)


@given(cuts())
@settings(max_examples=300)
def test_the_ranks_parts_of_all_batches_are_the_rest_once_and_in_order(cut):
    given_out = [
        position
        for number in range(cut.batches)
        for rank in range(cut.ranks)
        for position in range(*cut.share(number, rank))
    ]
    assert given_out == list(range(cut.begin, cut.end - cut.dropped))
    assert cut.end % cut.size == 0 or cut.joins_next


@given(cuts())
@settings(max_examples=300)
def test_every_rank_has_a_sample_in_every_batch_and_none_has_two_more_than_another(cut):
    for number in range(cut.batches):
        sizes = [end - begin for begin, end in (cut.share(number, rank) for rank in range(cut.ranks))]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= -(-cut.batch // cut.ranks) + 2  # what is left at both ends of an epoch may join one batch


@given(cuts(), st.integers(1, 5))
@settings(max_examples=200)
def test_the_workers_of_a_rank_have_each_of_its_batches_once_and_take_turns(cut, workers):
    whole = list(RankShares(cut, 0))
    parts = [list(RankShares(cut, 0, worker, workers)) for worker in range(workers)]
    assert [parts[number % workers][number // workers] for number in range(len(whole))] == whole


@given(cuts(), st.data())
@settings(max_examples=200)
def test_going_on_from_any_batch_with_any_ranks_gives_what_was_not_given_yet(cut, data):
    before = data.draw(st.integers(0, max(0, cut.batches - 1)))
    ranks = data.draw(st.integers(1, min(16, cut.size, cut.batch)))
    begin = cut.bounds(before)[0]
    rest = EpochCut(begin, cut.size, cut.batch, ranks, cut.last)
    positions = [p for n in range(rest.batches) for r in range(ranks) for p in range(*rest.share(n, r))]
    assert positions == list(range(begin, rest.end - rest.dropped))


@pytest.mark.parametrize("workers_of_ranks", [(ranks, workers) for ranks in (1, 2, 4, 8) for workers in (0, 1, 2, 4)])
def test_the_order_of_the_union_does_not_depend_on_ranks_and_workers(workers_of_ranks):
    ranks, workers = workers_of_ranks
    cut = EpochCut(64, 1003, 64, ranks)
    union = []
    for number in range(cut.batches):
        for rank in range(ranks):
            share = RankShares(cut, rank, number % max(1, workers), max(1, workers))[number // max(1, workers)]
            union += range(*share)
    assert union == list(range(64, 1003))


def test_fewer_samples_than_ranks_join_the_batch_before():
    cut = EpochCut(0, 67, 32, 4)
    assert cut.batches == 2
    assert cut.bounds(1) == (32, 67)
    assert EpochCut(0, 68, 32, 4).bounds(2) == (64, 68)


def test_a_rest_too_small_for_more_ranks_joins_the_next_epoch_and_its_batches_keep_their_places():
    cut = EpochCut(66, 67, 32, 4)
    assert (cut.epoch, cut.batches, cut.bounds(0)) == (0, 1, (66, 67 + 32))
    assert EpochCut(cut.end, 67, 32, 4).bounds(0) == (67 + 32, 2 * 67)


def test_what_would_leave_a_rank_without_samples_is_refused():
    for size, batch, ranks, last, word in [
        (100, 3, 4, SHORT, "the batch has fewer samples"),
        (3, 8, 4, SHORT, "corpus has fewer samples"),
        (100, 128, 4, DROP, "no full batch"),
    ]:
        with pytest.raises(UsageError, match=word):
            check_cut(size, batch, ranks, last, "corpus")


def test_an_order_reaches_over_epochs_and_every_epoch_is_another():
    order = SampleOrder(100, seed=3)
    both = order.samples(numpy.arange(200))
    assert sorted(both[:100].tolist()) == sorted(both[100:].tolist()) == list(range(100))
    assert both[:100].tolist() != both[100:].tolist()
    assert order.samples(numpy.arange(50, 150)).tolist() == both[50:150].tolist()
    assert SampleOrder(100, seed=4).samples(numpy.arange(100)).tolist() != both[:100].tolist()
    assert SampleOrder(100, shuffle=False).samples(numpy.arange(90, 110)).tolist() == [*range(90, 100), *range(10)]


def test_the_order_is_the_one_that_earlier_versions_had():
    """A checkpoint of years ago goes on with the same samples; if this fails, the order has changed and must not."""
    positions = numpy.arange(5000)
    found = {
        size: hashlib.sha256(SampleOrder(size, seed=7).samples(positions).astype("<i8").tobytes()).hexdigest()[:16]
        for size in (5, 1000, 70_001, 10**9)
    }
    assert found == {
        5: "ce93005c21cf9e12",
        1000: "e9d0359dcbb07795",
        70_001: "8f1ca4e3ae217ecd",
        10**9: "5c36931538df645c",
    }
