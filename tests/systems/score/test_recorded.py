"""Known kernels as a real GPU ran them: `recorded/<machine>/<kernel>`, no sample is made up (benchmarks/results/2026-11-26-score-on-h100.md)."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordee.systems.score.load import load
from cordee.systems.score.score import score

RECORDED = Path(__file__).parent / "recorded/h100"
# By kernel: the classes that are right, and where the mean of a counter, or of a part of the score, must lie.
TRUTHS = {
    "gemm-bf16": ({"compute"}, {"gpu_sm_ratio": (0.95, 1), "gpu_tensor_ratio": (0.7, 1), "time": (0.97, 1)}),
    "triad": ({"memory"}, {"gpu_dram_ratio": (0.8, 0.95), "time": (0.97, 1)}),
    "spin-one-sm": ({"mixed"}, {"gpu_sm_ratio": (0, 0.02), "time": (0.95, 1)}),
    "spin-quarter": ({"mixed"}, {"gpu_sm_ratio": (0.23, 0.27), "time": (0.95, 1)}),
    "spin-half": ({"mixed"}, {"gpu_sm_ratio": (0.48, 0.52), "time": (0.95, 1)}),
    "spin-all": ({"latency"}, {"gpu_sm_ratio": (0.98, 1), "time": (0.95, 1)}),
    "warps-8": ({"latency"}, {"gpu_occupancy_ratio": (0.095, 0.155), "gpu_sm_ratio": (0.95, 1)}),
    "warps-16": ({"latency"}, {"gpu_occupancy_ratio": (0.22, 0.28), "gpu_sm_ratio": (0.95, 1)}),
    "warps-32": ({"latency"}, {"gpu_occupancy_ratio": (0.47, 0.53), "gpu_sm_ratio": (0.95, 1)}),
    "warps-64": ({"latency"}, {"gpu_occupancy_ratio": (0.97, 1), "gpu_sm_ratio": (0.95, 1)}),
    "duty-25": ({"mixed", "idle"}, {"time": (0.2, 0.3)}),
    "duty-50": ({"mixed"}, {"time": (0.45, 0.55)}),
    "duty-75": ({"mixed", "compute"}, {"time": (0.7, 0.8)}),
    "host-to-device": ({"transfer"}, {"gpu_pcie_receive_bytes_per_second": (45e9, 60e9)}),
    "tiny-kernels": ({"launch"}, {"gpu_sm_ratio": (0, 0.4)}),
    "loader-decoding": ({"input"}, {"time": (0, 0.6)}),
    "loader-sleeping": ({"idle", "mixed"}, {"time": (0.02, 0.25)}),
    "loader-sleeping-logged": ({"input"}, {"time": (0.02, 0.25)}),
    "fma-fp64": ({"compute"}, {"gpu_fp64_ratio": (0.8, 1)}),
    "fma-fp32": ({"compute"}, {"gpu_fp32_ratio": (0.8, 1)}),
    "checkpoint": ({"checkpoint"}, {"time": (0, 0.05)}),
    "pointer-chase": ({"latency"}, {"gpu_sm_ratio": (0.8, 1), "depth": (0, 0.6)}),
}


def steady(trace, began, ended):
    """Return a trace's samples that were taken wholly while the kernel ran: not while it was started or ended."""
    inside = (trace.times - trace.cadence_s >= began) & (trace.times <= ended)

    def within(of):
        return of if of is None else replace(of, load=cut(of.load))

    def cut(read):
        return lambda name: None if (values := read(name)) is None else values[inside]

    logged = {
        name: replace(of, times=of.times[at], values=of.values[at])
        for name, of in trace.logged.items()
        for at in [(of.times >= began) & (of.times <= ended)]
    }
    return replace(
        trace,
        job=replace(trace.job, started_at=began, ended_at=ended),
        times=trace.times[inside],
        load=cut(trace.load),
        node=within(trace.node),
        rank=within(trace.rank),
        logged=logged,
    )


def test_each_kernel_was_recorded():
    assert {folder.name for folder in RECORDED.iterdir()} == TRUTHS.keys()


@pytest.mark.parametrize("name", TRUTHS)
def test_what_a_kernel_does_to_a_gpu_is_told_as_it_is(name):
    right, bands = TRUTHS[name]
    marks = json.loads((RECORDED / name / "marks.json").read_bytes())
    trace = steady(load(RECORDED / name), marks["began"], marks["ended"])
    found = score(trace, least_s=0.0)
    (device,) = found.devices
    assert max(device.classes, key=device.classes.get) in right
    for quantity, (low, high) in bands.items():
        counted = trace.load(quantity) if quantity.startswith("gpu_") else None
        value = getattr(found.shares, quantity) if counted is None else float(np.nanmean(counted))
        assert low <= value <= high or math.isclose(value, high, abs_tol=1e-6), (quantity, value)
