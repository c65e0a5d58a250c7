"""When a run is said to hang, and when it is not: tables of what agents tell, second by second."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from cordee.systems.explain.node.hang.detector import HangBegan, HangDetector, HangOver, HangPolicy
from cordee.wire.messages import RankStand

RANKS = 4
LAST_STEP = 10


def stand(rank: int, stands_s: float, idle_s: float | None = None, usual_s: float | None = 1.0, began: bool = True):
    return RankStand(rank, stands_s, stands_s if idle_s is None else idle_s, usual_s, began, "")


def all_stand(second: int) -> list[RankStand]:
    """Say that all ranks made their last step at 10 s."""
    return [stand(rank, float(second - LAST_STEP)) for rank in range(RANKS)] if second >= LAST_STEP + 5 else []


def seen(
    tell: Callable[[int], Iterable[RankStand] | None],
    *,
    until: int = 200,
    policy: HangPolicy = HangPolicy(),  # noqa: B008 - immutable
    interval_s: float = 1.0,
    looks: Callable[[int], bool] = lambda second: True,
) -> list[tuple[int, str]]:
    """Return what the detector says, and in which second. None told: the agents are not heard."""
    detector, found = HangDetector(policy, interval_s), []
    detector.begin(RANKS)
    detector.started(range(RANKS), 0.0)
    for second in range(1, until):
        told = tell(second)
        if told is not None:
            detector.told(range(RANKS), told, float(second))
        if looks(second) and (one := detector.look(float(second))) is not None:
            found.append((second, type(one).__name__))
    return found


def test_a_run_whose_ranks_all_stand_hangs_after_a_minute_and_is_said_so_once():
    assert seen(all_stand) == [(70, "HangBegan")]


def test_long_steps_have_ten_times_as_long():
    assert seen(lambda at: [stand(r, at - 10.0, usual_s=12.0) for r in range(4)] if at > 15 else []) == [
        (130, "HangBegan")
    ]


def test_what_is_asked_for_counts_instead():
    assert seen(all_stand, policy=HangPolicy(20.0)) == [(30, "HangBegan")]


@pytest.mark.parametrize("going", [1, 3])
def test_nobody_hangs_while_somebody_makes_steps(going):
    assert seen(lambda at: all_stand(at)[going:]) == []


def test_a_rank_that_validates_or_saves_for_minutes_is_waited_for():
    def validates(at: int) -> list[RankStand]:
        return [stand(0, at - 10.0, idle_s=1.0), *all_stand(at)[1:]] if at > 15 else []

    assert seen(validates, until=309) == []
    assert seen(validates, until=400) == [(310, "HangBegan")]


def test_a_first_step_has_ten_minutes():
    def compiles(at: int) -> list[RankStand]:
        return [stand(r, float(at), usual_s=None, began=False) for r in range(4)] if at > 5 else []

    assert seen(compiles, until=599) == []
    assert seen(compiles, until=602) == [(600, "HangBegan")]


def test_a_hang_that_ends_by_itself_is_over_once():
    assert seen(lambda at: all_stand(at) if at < 100 else []) == [(70, "HangBegan"), (100, "HangOver")]


@pytest.mark.parametrize(
    "silence",
    [
        lambda at: None if 100 < at < 106 else all_stand(at),
        lambda at: all_stand(at) if at % 5 == 0 else None,
        lambda at: None if 60 < at < 66 else all_stand(at),
    ],
    ids=["after it was told", "told each five seconds", "before"],
)
def test_telemetry_that_comes_late_is_no_sign_of_life(silence):
    found = seen(silence)
    assert [kind for _, kind in found] == ["HangBegan"]
    assert found[0][0] in range(70, 76)


def test_ranks_that_are_not_heard_of_are_not_judged():
    assert seen(lambda at: None if at > 30 else all_stand(at)) == []


def test_rare_telemetry_is_enough():
    assert seen(lambda at: all_stand(at) if at % 30 == 0 else None, interval_s=30.0) == [(90, "HangBegan")]


def test_a_supervisor_that_stood_still_counts_no_time_that_it_did_not_see():
    found = seen(all_stand, looks=lambda at: not 40 < at < 60)
    assert found == [(90, "HangBegan")]


@pytest.mark.parametrize("pause", [20, 150])
def test_an_agent_that_was_paused_during_a_hang_begins_no_new_one(pause):
    def paused(at: int) -> list[RankStand] | None:
        if 100 < at <= 100 + pause:
            return None
        return [stand(r, at - 10.0 - (pause if at > 100 else 0.0)) for r in range(4)] if at > 15 else []

    assert seen(paused, until=400) == [(70, "HangBegan")]


def test_ranks_that_went_on_while_nobody_was_heard_hang_anew():
    def unheard(at: int) -> list[RankStand] | None:
        if 100 < at < 140:
            return None
        return [stand(r, at - (10.0 if at <= 100 else 130.0)) for r in range(4)] if at > 15 else []

    assert seen(unheard) == [(70, "HangBegan"), (140, "HangOver"), (190, "HangBegan")]


def test_what_an_earlier_attempt_stood_for_does_not_count():
    detector = HangDetector(HangPolicy(8.0))
    detector.begin(2)
    detector.started(range(2), 100.0)
    detector.told(range(2), [stand(0, 11.0), stand(1, 11.0)], 101.0)
    assert detector.look(102.0) is None


@pytest.mark.parametrize("world", [2, 6])
def test_an_attempt_of_another_size_hangs_by_its_own_ranks_alone(world):
    detector = HangDetector(HangPolicy(8.0))
    detector.begin(4)
    detector.started(range(4), 0.0)
    detector.has_ended(1, 0)
    detector.told(range(4), [stand(rank, 20.0) for rank in (0, 2, 3)], 21.0)
    assert isinstance(detector.look(21.0), HangBegan)
    detector.begin(world)
    detector.started(range(world), 30.0)
    late = [stand(rank, 25.0) for rank in range(4)]  # of an agent that has not heard of the new attempt
    detector.told(range(4), late, 31.0)
    assert detector.look(31.0) is None
    for second in range(32, 41):
        detector.told(range(world), [stand(rank, second - 32.0) for rank in range(world)], float(second))
        began = detector.look(float(second))
        assert (began is None) == (second < 40)
    assert isinstance(began, HangBegan)
    assert (sorted(began.ranks), began.ended) == (list(range(world)), {})


def test_ranks_that_have_not_started_are_waited_for_and_those_that_ended_are_told():
    detector = HangDetector(HangPolicy(8.0))
    detector.begin(3)
    detector.started([0, 1], 0.0)
    detector.told([0, 1], [stand(0, 20.0), stand(1, 20.0)], 21.0)
    assert detector.look(21.0) is None
    detector.has_ended(2, 0)
    detector.told([0, 1], [stand(0, 21.0), stand(1, 21.0)], 22.0)
    began = detector.look(22.0)
    assert isinstance(began, HangBegan)
    assert (sorted(began.ranks), began.ended) == ([0, 1], {2: 0})
    assert detector.hangs
    detector.told([0, 1], [stand(1, 22.0)], 23.0)
    assert detector.look(23.0) == HangOver(22.0)
    assert not detector.hangs
