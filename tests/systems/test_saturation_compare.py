"""Jobs held against each other: what moved adds up, unlike jobs are said to be so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cordee.systems.score.compare import PARTS, compare, split_change
from cordee.systems.score.result import CLASSES, Saturation, ScorePart, ScoreShares, ScoreWindows
from cordee.systems.score.trace.model import ScoredDevice, ScoredJob


def scoring(name="job", graphics=0.8, sm=0.6, sol=0.4, count=60, noise=0.05, seed=0, busy=0.2):
    """Return a scoring of two devices over windows of 10 s; the first `busy` of them waited for input."""
    random = np.random.default_rng(seed)
    shape = (count, 2)
    rows = [np.clip(level + random.normal(0, noise, shape), 0, 1) for level in (graphics, sm, sol)]
    means = [float(row.mean()) for row in rows]
    shares = ScoreShares(100 * means[2], means[0], means[1] / means[0], means[2] / means[1], 1.0, count * 20.0)
    classes = np.full(shape, CLASSES.index("compute"), np.int8)
    classes[: round(count * busy)] = CLASSES.index("input")
    features = {
        "graphics": rows[0], "sm": rows[1], "SOL": rows[2],
    }  # fmt: skip
    device = ScorePart("GPU-0", shares, {}, {}, ScoredDevice("GPU-0", "n1", model="H100"))
    return Saturation(
        job=ScoredJob(name, world_size=2, allocated=2), kind="gpu", source="replay", cadence_s=1.0, seconds=count * 10.0,
        shares=shares, devices=[device], nodes=[], ranks=[], windows=ScoreWindows(np.arange(count) * 10.0, 10.0, classes, features),
        diagnosis=[], flags=[], caps=[],
    )  # fmt: skip


def test_the_parts_of_a_change_add_up_to_it():
    before, after = scoring(), scoring(graphics=0.95, sm=0.8, sol=0.7, seed=1)
    parts = split_change(before, after)
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(after.shares.score - before.shares.score)


def test_a_job_held_against_itself_moved_by_nothing():
    pair = compare([scoring(), scoring()]).pairs[0]
    assert pair.score.change == 0
    assert pair.against == ()


def test_shares_of_classes_move_and_small_ones_are_left_out():
    pair = compare([scoring(busy=0.4), scoring(busy=0.1)]).pairs[0]
    moved = {moved.name: moved for moved in pair.classes}
    assert moved["input"].change == pytest.approx(-0.3)
    assert compare([scoring(busy=0.4), scoring(busy=0.4)]).pairs[0].classes == ()


def test_a_job_without_a_score_moves_nothing():
    empty = dataclasses.replace(scoring(), shares=ScoreShares(None, None, None, None, 0.0, 0.0))
    pair = compare([scoring(), empty]).pairs[0]
    assert pair.score.change is None
    assert pair.parts == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "cpu"}, "CPU cores"),
        ({"job": ScoredJob("b", world_size=4, allocated=4)}, "2 and 4 devices"),
        ({"assumed": ("depth",)}, "assumed to be 1"),
        (
            {"devices": [ScorePart("x", ScoreShares(1, 1, 1, 1, 1, 1), {}, {}, ScoredDevice("x", "n", model="A100"))]},
            "the devices differ",
        ),
    ],
)
def test_jobs_of_another_kind_are_said_to_be_so(change, words):
    pair = compare([scoring(), dataclasses.replace(scoring(), **change)]).pairs[0]
    assert any(words in reason for reason in pair.against)


def test_each_job_is_held_against_the_first():
    comparison = compare([scoring("a"), scoring("b"), scoring("c")])
    assert [(pair.before, pair.after) for pair in comparison.pairs] == [("a", "b"), ("a", "c")]
    assert compare([scoring()]).pairs == ()
