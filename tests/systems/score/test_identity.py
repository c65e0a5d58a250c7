from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cordee.systems.score.score import score as score_of

# Sums are the same however little there is of them.
score = partial(score_of, least_s=0.0)
RATIO = st.one_of(st.floats(0, 1, width=32), st.just(float("nan")), st.just(0.0))
NAMES = ("gpu_graphics_ratio", "gpu_sm_ratio", "gpu_tensor_ratio", "gpu_fp32_ratio", "gpu_dram_ratio")
TABLES = st.tuples(st.integers(1, 12), st.integers(1, 4)).flatmap(
    lambda shape: st.fixed_dictionaries({name: arrays.arrays(np.float32, shape, elements=RATIO) for name in NAMES})
)


def parts_of(saturation):
    return [saturation.shares, *(part.shares for part in (*saturation.devices, *saturation.nodes, *saturation.ranks))]


@given(TABLES)
@settings(max_examples=80)
def test_score_is_exactly_time_x_breadth_x_depth_for_every_part_whatever_is_missing(made, columns):
    found = score(made.trace(columns))
    for shares in parts_of(found):
        if shares.score is None:
            assert (shares.time, shares.breadth, shares.depth) == (None, None, None)
            assert shares.device_seconds == 0
        else:
            assert shares.score == pytest.approx(100 * shares.time * shares.breadth * shares.depth, abs=1e-12)
            assert 0 <= shares.score <= 100.001
            assert 0 <= shares.coverage <= 1


@given(TABLES)
@settings(max_examples=60)
def test_score_of_the_job_is_the_mean_of_its_devices_weighted_by_what_was_measured(made, columns):
    found = score(made.trace(columns))
    if found.shares.score is None:
        return
    scored = [part.shares for part in found.devices if part.shares.score is not None]
    total = sum(shares.score * shares.device_seconds for shares in scored)
    assert found.shares.score == pytest.approx(total / found.shares.device_seconds, rel=1e-9, abs=1e-9)


def test_score_is_the_mean_of_how_near_each_sample_came_to_the_roof(made):
    tensor, dram = np.array([[0.465], [0.93], [0.0]]), np.array([[0.2], [0.0], [0.6]])
    busy = np.ones((3, 1))
    found = score(
        made.trace(
            {"gpu_graphics_ratio": busy, "gpu_sm_ratio": busy * 0.8, "gpu_tensor_ratio": tensor, "gpu_dram_ratio": dram}
        )
    )
    assert found.shares.score == pytest.approx(100 * (0.5 + 1.0 + 0.75) / 3, rel=1e-6)
    assert found.shares.time == pytest.approx(1)
    assert found.shares.breadth == pytest.approx(0.8)
    assert found.assumed == ()


def test_a_missing_sample_lowers_coverage_and_not_the_score(made):
    columns = {name: np.full((10, 1), 0.5, dtype=np.float32) for name in NAMES}
    whole = score(made.trace(columns))
    columns["gpu_sm_ratio"] = columns["gpu_sm_ratio"].copy()
    columns["gpu_sm_ratio"][4:] = math.nan
    holed = score(made.trace(columns))
    assert holed.shares.score == pytest.approx(whole.shares.score)
    assert (whole.shares.coverage, holed.shares.coverage) == (1.0, pytest.approx(0.4))


def test_a_source_without_pipes_gives_an_upper_bound_that_says_so(made):
    found = score(made.trace({"gpu_utilization_ratio": np.full((10, 2), 0.7)}))
    assert found.shares.score == pytest.approx(70)
    assert found.assumed == ("breadth", "depth")


def test_a_pipe_that_was_never_measured_does_not_count_as_zero(made):
    busy = np.ones((4, 1))
    columns = {"gpu_graphics_ratio": busy, "gpu_sm_ratio": busy, "gpu_dram_ratio": busy * 0.8}
    assert score(made.trace({**columns, "gpu_tensor_ratio": busy * math.nan})).shares.score == pytest.approx(100)


def test_copies_without_a_kernel_are_no_work_of_the_gpu(made):
    idle = np.zeros((4, 1))
    found = score(made.trace({"gpu_graphics_ratio": idle, "gpu_sm_ratio": idle, "gpu_dram_ratio": idle + 0.1}))
    assert found.shares.score == 0
    assert (found.shares.time, found.shares.breadth, found.shares.depth) == (0, 0, 0)


def test_an_instance_counts_by_its_share_of_the_gpu(made):
    from cordee.systems.score.trace.model import ScoredDevice

    devices = [
        ScoredDevice("MIG-a", "n0", 0, made.H100, parent="GPU-0", share=0.75),
        ScoredDevice("MIG-b", "n0", 1, made.H100, parent="GPU-0", share=0.25),
    ]
    busy = np.array([[1.0, 0.0]] * 4)
    columns = {"gpu_graphics_ratio": busy, "gpu_sm_ratio": busy, "gpu_dram_ratio": busy}
    assert score(made.trace(columns, devices=devices)).shares.score == pytest.approx(75)
