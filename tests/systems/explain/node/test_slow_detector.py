"""Who is slow, from what ranks do with their time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cordee.core.stats import peers_of
from cordee.systems.explain.node.slow.detector import SlowDetector, SlowOver, SlowRanks
from cordee.wire.messages import KindTimes, RankDigest

NONE = KindTimes(0.0, 0, 0.0, 0.0)
Extra = Mapping[str, float]


def kind(seconds: float) -> KindTimes:
    return KindTimes(seconds, round(10 * seconds), seconds, seconds**2)


class Training:
    """A synchronous training: a step takes as long as the slowest rank's work, and every other rank waits; rounds pass when told to.

    Args:
        nodes: the node of each rank.
        noise: the deviation of a rank's work in a round, as a share of it.
    """

    def __init__(self, nodes: list[str], noise: float = 0.01, places: Mapping[int, Mapping[str, int]] | None = None):
        self.nodes, self.noise = nodes, noise
        self.chance = random.Random(7)
        self.detector, self.now = SlowDetector(), 0.0
        self.groups = peers_of(places or {})
        self.silent: set[int] = set()
        self.told: list[SlowRanks | SlowOver] = []
        self.base = [0.7] * len(nodes)
        self.restart()

    def restart(self, nodes: list[str] | None = None) -> None:
        self.nodes = nodes or self.nodes
        self.base = (self.base * len(self.nodes))[: len(self.nodes)]
        self.detector.begin(dict(enumerate(self.nodes)), self.groups, self.now)

    def round(self, extra: Mapping[int, Extra] | None = None, steps: int = 20) -> list[SlowRanks | SlowOver]:
        """Ten seconds pass; `extra` is by rank what it does more than usual, in seconds, by kind of time."""
        works = [
            max(0.1, base + sum((extra or {}).get(rank, {}).values()) / 10 + self.chance.gauss(0, self.noise * base))
            for rank, base in enumerate(self.base)
        ]
        step = max(1.0, max(works) + 0.1)
        digests = []
        for rank, work in enumerate(works):
            more = (extra or {}).get(rank, {})
            scale = 10 / step
            parts = {name: more.get(name, 0.0) / 10 * scale for name in ("data", "saving", "stopped")}
            compute = work * scale - sum(parts.values())
            wait = 10 - work * scale
            digests.append(
                RankDigest(
                    *(rank, 10.0, steps, kind(compute), kind(parts["data"]), kind(wait), kind(parts["saving"])),
                    delayed_s=more.get("delayed", 0.0) / step,
                    unseen_s=parts["stopped"],
                    faults=0,
                    throttled_s=more.get("throttled", 0.0) / step,
                )
            )
        self.now += 10.0
        self.detector.told([one for one in digests if one.rank not in self.silent], self.now)
        found = self.detector.look(self.now)
        self.told += found
        return found

    def rounds(self, count: int, extra: Mapping[int, Extra] | None = None, **more: Any) -> list[SlowRanks | SlowOver]:
        return [one for _ in range(count) for one in self.round(extra, **more)]


def slowed(ranks: Any, seconds: float = 1.4, what: str = "compute") -> dict[int, dict[str, float]]:
    """Ranks that work so much longer in each ten seconds: 1.4 s of 7 s are 20 %."""
    return {rank: {what: seconds} for rank in ranks}


def on_nodes(count: int, each: int) -> list[str]:
    return [f"n{at}" for at in range(count) for _ in range(each)]


def test_the_rank_that_waits_least_is_named_with_how_much_slower_it_is_within_a_minute():
    training = Training(on_nodes(2, 4))
    assert training.rounds(6) == []
    (found,) = training.rounds(5, slowed([5]))
    assert isinstance(found, SlowRanks)
    assert (found.node, found.ranks, found.whole_node, found.chronic) == ("n1", (5,), False, False)
    assert found.slower == pytest.approx(0.2, abs=0.06)
    assert found.share < found.peers_share
    assert found.since == pytest.approx(60.0, abs=10)
    assert found.cause.kind == "compute"


def test_it_is_told_once_again_when_it_lasts_and_when_it_is_over():
    training = Training(on_nodes(2, 4))
    training.rounds(4)
    first, again = training.rounds(40, slowed([5]))
    assert isinstance(first, SlowRanks)
    assert isinstance(again, SlowRanks)
    assert (first.chronic, again.chronic, again.ranks) == (False, True, (5,))
    (over,) = training.rounds(10)
    assert isinstance(over, SlowOver)
    assert (over.ranks, over.node) == ((5,), "n1")
    assert over.lasted_s == pytest.approx(400, abs=30)
    assert training.detector.standing() == []


def test_five_per_cent_take_five_minutes():
    training = Training(on_nodes(4, 4))
    training.rounds(4)
    found = training.rounds(40, slowed([5], 0.35))
    assert [one.ranks for one in found if isinstance(one, SlowRanks)] == [(5,), (5,)]


@pytest.mark.parametrize(
    ("what", "kind", "how"),
    [
        ("compute", "compute", ""),
        ("data", "data", ""),
        ("stopped", "host", "stopped"),
    ],
)
def test_the_cause_is_what_it_does_with_the_time_that_the_others_wait(what, kind, how):
    training = Training(on_nodes(2, 4))
    (found,) = training.rounds(6, slowed([2], what=what))
    assert isinstance(found, SlowRanks)
    assert (found.cause.kind, found.cause.how) == (kind, how)


@pytest.mark.parametrize("how", ["delayed", "throttled"])
def test_time_in_which_it_has_no_processor_is_the_hosts_though_it_stands_in_its_work(how):
    training = Training(on_nodes(2, 4))
    found = training.rounds(6, {2: {"compute": 0.3, how: 1.1}})
    assert [(one.cause.kind, one.cause.how) for one in found if isinstance(one, SlowRanks)] == [("host", how)]


def test_where_waiting_alone_is_within_noise_time_that_the_kernel_takes_decides():
    for seed in range(5):
        training = Training(on_nodes(2, 4), noise=0.08)
        training.chance.seed(seed)
        training.rounds(4)
        found = training.rounds(12, slowed([2], what="stopped"))
        assert [one.ranks for one in found if isinstance(one, SlowRanks)][:1] == [(2,)], seed
        assert found[0].cause.how == "stopped"
        training.restart()
        assert training.rounds(40) == [], seed


def test_what_one_of_few_ranks_differs_by_for_ever_names_nobody():
    training = Training(on_nodes(2, 4), noise=0.005)
    assert training.rounds(120, slowed([0], 0.4)) == []


def test_among_many_peers_the_same_difference_names_the_rank():
    training = Training(on_nodes(16, 4), noise=0.005)
    assert [one.ranks for one in training.rounds(40, slowed([0], 0.4))[:1]] == [(0,)]


def test_who_is_throttled_need_wait_by_little_less():
    training = Training(on_nodes(2, 4), noise=0.003)
    (found,) = training.rounds(5, {2: {"compute": -0.9, "throttled": 1.3}})
    assert isinstance(found, SlowRanks)
    assert (found.ranks, found.cause.how) == ((2,), "throttled")


def test_throttled_time_that_is_delayed_as_well_is_the_quotas():
    training = Training(on_nodes(2, 4))
    (found,) = training.rounds(5, {2: {"compute": 0.2, "throttled": 1.0, "delayed": 1.5}})
    assert isinstance(found, SlowRanks)
    assert (found.cause.kind, found.cause.how) == ("host", "throttled")


def test_who_has_long_been_no_slower_than_equal_ranks_differ_is_slow_no_more():
    training = Training(on_nodes(2, 4))
    (found,) = training.rounds(5, slowed([5]))
    assert isinstance(found, SlowRanks)
    (over,) = training.rounds(40, slowed([5], 0.4))
    assert isinstance(over, SlowOver)
    assert training.detector.standing() == []


def test_of_two_kinds_at_once_the_cause_is_unknown():
    training = Training(on_nodes(2, 4))
    (found,) = training.rounds(6, {3: {"compute": 0.8, "data": 0.8}})
    assert isinstance(found, SlowRanks)
    assert (found.ranks, found.cause.kind) == ((3,), "unknown")


def test_a_node_whose_ranks_are_all_slow_is_one_finding():
    training = Training(on_nodes(8, 4))
    training.rounds(4)
    (found,) = training.rounds(6, slowed([12, 13, 14, 15]))
    assert isinstance(found, SlowRanks)
    assert (found.node, found.ranks, found.whole_node) == ("n3", (12, 13, 14, 15), True)
    training.rounds(40, slowed([12, 13, 14, 15]))
    assert [(one.whole_node, one.chronic) for one in training.told if isinstance(one, SlowRanks)] == [
        (True, False),
        (True, True),
    ]


def test_ranks_of_a_node_that_follow_one_round_later_are_the_node():
    training = Training(on_nodes(8, 2))
    training.rounds(4)
    training.round(slowed([6]))
    found = training.rounds(6, slowed([6, 7]))
    assert [(one.ranks, one.whole_node) for one in found if isinstance(one, SlowRanks)] == [((6, 7), True)]


@pytest.mark.parametrize("count", [4, 3])
def test_when_half_of_the_ranks_are_slow_or_a_third_nobody_is_blamed(count):
    training = Training(on_nodes(2, 4))
    training.rounds(4)
    assert training.rounds(40, slowed(range(count))) == []


@pytest.mark.parametrize("world", [1, 2, 3])
def test_of_two_or_three_ranks_nothing_can_be_said(world):
    training = Training(on_nodes(1, world))
    assert training.rounds(40, slowed([0], 3.0)) == []


def test_short_spikes_are_counted_and_blame_nobody():
    training = Training(on_nodes(2, 4))
    training.rounds(4)
    for _ in range(12):
        training.rounds(4)
        training.rounds(2, slowed([5], 4.0))
    assert [one for one in training.told if isinstance(one, SlowRanks)] == []
    assert set(training.detector.spikes) == {5}
    assert training.detector.spikes[5] == 24


def test_noise_blames_nobody_however_large_it_is():
    for noise in (0.02, 0.1, 0.3):
        training = Training(on_nodes(8, 4), noise)
        assert training.rounds(180) == [], noise


def test_stages_of_a_pipeline_are_not_compared_with_each_other():
    places = {rank: {"dp": rank // 4, "pp": rank % 4} for rank in range(32)}
    unequal = Training(on_nodes(8, 4), places=places)
    unequal.base = [0.45, 0.5, 0.6, 0.7] * 8
    unequal.rounds(4)
    (found,) = unequal.rounds(6, slowed([9], 1.0))
    assert isinstance(found, SlowRanks)
    assert found.ranks == (9,)  # of the second stage, which waits more than the last one though it is slow


def test_a_save_of_one_rank_blames_nobody_unless_it_never_ends():
    training = Training(on_nodes(2, 4))
    training.rounds(4)
    assert training.rounds(8, slowed([0], 3.0, "saving")) == []
    found = training.rounds(30, slowed([0], 3.0, "saving"))
    first = next(one for one in found if isinstance(one, SlowRanks))
    assert (first.ranks, first.cause.kind) == ((0,), "saving")


def test_rounds_without_a_step_say_nothing_and_long_steps_make_longer_rounds():
    training = Training(on_nodes(2, 4))
    training.rounds(3)
    assert training.rounds(60, slowed([5], 4.0), steps=0) == []  # a validation
    found = training.rounds(40, slowed([5], 1.4), steps=1)  # a step takes ten seconds
    assert isinstance(found[0], SlowRanks)
    assert found[0].ranks == (5,)


def test_where_steps_are_not_known_every_round_counts():
    training = Training(on_nodes(2, 4))
    found = training.rounds(6, slowed([5]), steps=0)
    assert [one.ranks for one in found if isinstance(one, SlowRanks)] == [(5,)]


def test_ranks_that_tell_nothing_are_neither_judged_nor_stand_in_the_way():
    training = Training(on_nodes(2, 4))
    training.silent = {1, 6}
    found = training.rounds(6, slowed([5]))
    assert [one.ranks for one in found if isinstance(one, SlowRanks)] == [(5,)]
    training.restart()
    training.silent = {0, 1, 2, 3, 6}
    assert training.rounds(40, slowed([5])) == []  # three are heard: too few


def test_a_slow_rank_that_falls_silent_is_not_over():
    training = Training(on_nodes(2, 4))
    training.rounds(6, slowed([5]))
    training.silent = {5}
    training.rounds(10)
    assert not any(isinstance(one, SlowOver) for one in training.told)
    assert [one.rank for one in training.detector.standing()] == [5]


def test_after_a_restart_all_is_forgotten_but_which_nodes_were_slow():
    training = Training(on_nodes(2, 4))
    training.rounds(6, slowed([5]))
    training.restart()
    assert training.detector.standing() == []
    assert training.rounds(3, slowed([1])) == []
    (found,) = training.rounds(3, slowed([1]))
    assert isinstance(found, SlowRanks)
    assert (found.ranks, found.chronic) == ((1,), False)
    training.restart()
    (again,) = training.rounds(6, slowed([7]))
    assert isinstance(again, SlowRanks)
    assert again.chronic  # its node was slow in the attempt before


def test_a_world_of_another_size_is_judged_by_its_own_ranks():
    training = Training(on_nodes(4, 4))
    training.rounds(6, slowed([15]))
    training.restart(on_nodes(2, 4))
    late = RankDigest(15, 10.0, 20, kind(10.0), NONE, NONE, NONE, 0.0, 0.0, 0, 0.0)
    training.detector.told([late], training.now)  # of an agent that has not heard of the new attempt
    found = training.rounds(6, slowed([3]))
    assert [one.ranks for one in found if isinstance(one, SlowRanks)] == [(3,)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: one._replace(window_s=0.0),
        lambda one: one._replace(window_s=float("nan")),
        lambda one: one._replace(window_s=float("inf")),
        lambda one: one._replace(rank=-1),
        lambda one: one._replace(communication=NONE._replace(seconds=float("nan"))),
        lambda one: one._replace(compute=NONE, data=NONE, communication=NONE),  # with CUDA, where frames say nothing
    ],
)
def test_what_cannot_be_is_not_known(spoil: Callable[[RankDigest], RankDigest]):
    detector = SlowDetector()
    detector.begin(dict.fromkeys(range(8), "n"), {}, 0.0)
    now = 0.0
    for _ in range(8):
        now += 10.0
        for rank in range(8):
            wait = 0.5 if rank == 3 else 3.0
            one = RankDigest(rank, 10.0, 9, kind(10 - wait), NONE, kind(wait), NONE, 0.0, 0.0, 0, 0.0)
            detector.told([spoil(one) if rank == 3 else one], now)
        assert detector.look(now) == []


def test_nothing_is_said_before_there_are_ranks():
    assert SlowDetector().look(1e9) == []
