"""Scores and classes of made workloads whose truth is known: with a start, noise, quantisation and gaps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cordee.systems.score.load import load
from cordee.systems.score.result import CLASSES
from cordee.systems.score.score import score
from support.recordings.scenarios import CALM, GEMM, REST, SCENARIOS, Scenario, StepPhase
from support.recordings.workloads import Made, MadeNoise, cut, write_course, write_scenario

AS_IT_IS = MadeNoise(variety=0.0)
POINTS = 0.03


@pytest.mark.parametrize("duty", [0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
@pytest.mark.parametrize(("breadth", "pipe"), [(0.98, 0.86), (0.5, 0.3)])
def test_sub_scores_of_a_replayed_duty_cycle_are_within_3_points_of_the_truth(duty, breadth, pipe, tmp_path):
    work = {**GEMM, "sm": breadth, "tensor": pipe, "tensor_hmma": pipe, "dram": 0.1}
    phases = (StepPhase(duty, work, CALM), StepPhase(1.0 - duty, REST, CALM))
    made = write_scenario(
        Scenario("duty", ("mixed",), "tuned", phases, step_s=0.83), tmp_path / "r", seconds=150, noise=AS_IT_IS
    )
    trace = cut(load(made.folder), made.began, made.ended)
    found = score(trace)
    cap = found.caps[0].pipe["tensor"]
    assert found.shares.time == pytest.approx(duty, abs=POINTS)
    assert found.shares.breadth == pytest.approx(breadth, abs=POINTS)
    assert found.shares.depth == pytest.approx(pipe / cap / breadth, abs=POINTS)
    assert found.shares.score == pytest.approx(100 * duty * pipe / cap, abs=100 * POINTS)


def right_windows(made: Made) -> tuple[int, int]:
    """Return how many labelled windows x devices have a right class, and how many there are."""
    found = score(load(made.folder)).windows
    inside = (found.starts >= made.began) & (found.starts + found.length_s <= made.ended + 1.0)
    right = [CLASSES.index(name) for name in made.right]
    return int(np.isin(found.classes[inside], right).sum()), int(found.classes[inside].size)


def accuracy(half: str, folder, noise: MadeNoise, seed: int) -> tuple[float, Counter[str]]:
    """Return the share of right windows over a half of the scenarios, and the wrong ones by scenario."""
    total, right, wrong = 0, 0, Counter[str]()
    for at, of in enumerate(one for one in SCENARIOS if one.half == half):
        good, windows = right_windows(write_scenario(of, folder / str(at), seed=seed, seconds=70, noise=noise))
        right, total = right + good, total + windows
        wrong[of.name] += windows - good
    return right / total, +wrong


@pytest.mark.parametrize(("half", "least"), [("tuned", 0.9), ("held out", 0.85)])
def test_classes_of_made_workloads_are_right_for_the_half_that_rules_saw_and_for_the_other(half, least, tmp_path):
    share, wrong = accuracy(half, tmp_path, MadeNoise(), seed=17)
    assert share >= least, wrong


def test_phases_of_one_recording_get_the_classes_of_their_time(tmp_path):
    names = ("decoding-images", "gemm", "checkpoint", "peers-wait")
    parts = [next(of for of in SCENARIOS if of.name == name) for name in names]
    parts = [replace(of, gpus=4) for of in parts]
    for made in write_course(parts, tmp_path / "r", seconds_each=60, noise=AS_IT_IS):
        right, windows = right_windows(made)
        assert windows >= 4
        assert right >= 0.7 * windows, made.right


def test_halves_share_no_workload_and_every_class_is_in_both():
    by_half = {half: [of for of in SCENARIOS if of.half == half] for half in ("tuned", "held out")}
    assert len({of.name for of in SCENARIOS}) == len(SCENARIOS)
    for of_half in by_half.values():
        assert {of.right[0] for of in of_half} == set(CLASSES) - {"contention"}  # of cores only
    assert not {str(of.phases) for of in by_half["tuned"]} & {str(of.phases) for of in by_half["held out"]}
