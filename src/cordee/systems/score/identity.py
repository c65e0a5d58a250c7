"""The identity: `score = 100 x time x breadth x depth`, exact for every set of devices, from sums over the same samples.

Of each sample: use (graphics) G, active SMs S, and how near to the roof it came, SOL = min(1, max(P, D)), where P is the
greatest of pipe / its cap and D is DRAM / its cap. Then time = mean(G), breadth = sum(S) / sum(G), depth = sum(SOL) / sum(S),
and their product is mean(SOL). Only samples that have all of them count; coverage says how many those are.

A sample in which no kernel ran (G = 0) has no active SM, and one without an active SM reached no roof: what copy engines
move meanwhile is no work of the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cordee.systems.score.result import Caps, ScoreShares
from cordee.systems.score.trace import cores

if TYPE_CHECKING:
    from cordee.systems.score.trace.model import ScoreTrace
    from cordee.systems.score.windows import WindowCut

# The pipes by the names of caps; where the tensor pipe is only measured by precision, its parts add up.
PIPES = {
    "tensor": "gpu_tensor_ratio",
    "fp64": "gpu_fp64_ratio",
    "fp32": "gpu_fp32_ratio",
    "fp16": "gpu_fp16_ratio",
}
TENSOR_PARTS = ("gpu_tensor_dfma_ratio", "gpu_tensor_hmma_ratio", "gpu_tensor_imma_ratio")
GRAPHICS, COARSE, SM, DRAM = "gpu_graphics_ratio", "gpu_utilization_ratio", "gpu_sm_ratio", "gpu_dram_ratio"


@dataclass
class Levels:
    """What of every sample goes into the score, float32 [time, device]; NaN = missing.

    Attributes:
        pipe, dram: P and D, None where nothing of the kind was measured.
        assumed: of breadth and depth those that were not measured for some device and count as 1.
        lacking: of pipes and DRAM what was not measured: SOL is then what the others show, a lower bound.
        means: float64 [window, device] of the pipes and of DRAM by name, not scaled by caps, so that each is read once.
    """

    graphics: np.ndarray
    sm: np.ndarray
    sol: np.ndarray
    pipe: np.ndarray | None = None
    dram: np.ndarray | None = None
    assumed: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    means: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Sums:
    """Sums over the samples of each device; `weight` is float64 [device], the device's share of a GPU.

    Attributes:
        table: float64 [4, device]: samples, G, S and SOL, each times the device's weight.
    """

    table: np.ndarray
    weight: np.ndarray

    def shares(self, devices: Sequence[int], cadence_s: float, allocated_s: float) -> ScoreShares:
        """Return the score of some devices.

        Args:
            devices: their columns.
            allocated_s: device-seconds that were allocated, an instance counting by its share of the GPU.
        """
        samples, graphics, sm, sol = self.table[:, list(devices)].sum(axis=1).tolist()
        seconds = samples * cadence_s
        coverage = min(1.0, seconds / allocated_s) if allocated_s > 0 else 0.0
        if samples <= 0:
            return ScoreShares(None, None, None, None, coverage, 0.0)
        time = graphics / samples
        breadth = sm / graphics if graphics > 0 else 0.0
        depth = sol / sm if sm > 0 else 0.0
        return ScoreShares(100.0 * time * breadth * depth, time, breadth, depth, coverage, seconds)


def levels(trace: ScoreTrace, caps: Sequence[Caps], cut: WindowCut) -> Levels:
    """Return G, S and SOL of a trace.

    Args:
        caps: of each device, in their order.
        cut: the windows of `Levels.means`.
    """
    found = _core_levels(trace, caps) if trace.kind == "cpu" else _gpu_levels(trace, caps, cut)
    found.sm = np.where(found.graphics > 0, found.sm, np.where(np.isnan(found.graphics), np.nan, np.float32(0)))
    found.sol = np.where(found.sm > 0, found.sol, np.where(np.isnan(found.sm), np.nan, np.float32(0)))
    return found


def sums(found: Levels, weights: Sequence[float]) -> Sums:
    """Return the sums over the samples that have G, S and SOL, devices weighted by `weights`."""
    there = np.isfinite(found.graphics) & np.isfinite(found.sm) & np.isfinite(found.sol)
    weight = np.asarray(weights, dtype=np.float64)

    def summed(values: np.ndarray) -> np.ndarray:
        total: np.ndarray = np.where(there, values, np.float32(0)).sum(axis=0, dtype=np.float64) * weight
        return total

    rows = [there.sum(axis=0) * weight, summed(found.graphics), summed(found.sm), summed(found.sol)]
    return Sums(np.stack(rows), weight)


def _gpu_levels(trace: ScoreTrace, caps: Sequence[Caps], cut: WindowCut) -> Levels:
    graphics = _first_of(trace.load(GRAPHICS), trace.load(COARSE), (len(trace.times), len(trace.devices)))
    seen = ~_never(graphics)  # a device without any sample says nothing of what the source can measure
    pipes = _Pipes(trace, caps, cut, seen)
    pipe, dram = pipes.greatest(), pipes.dram()
    sm, assumed = _or_else(trace.load(SM), graphics)
    breadth = ("breadth",) if (assumed & seen).any() else ()
    sol = _greater(pipe, dram)
    sol, depth_assumed = _or_else(None if sol is None else np.minimum(sol, np.float32(1)), sm)
    depth = ("depth",) if (depth_assumed & seen).any() else ()
    told = () if (depth_assumed | ~seen).all() else tuple(pipes.lacking)
    return Levels(graphics, sm, sol, pipe, dram, (*breadth, *depth), told, pipes.means)


def _core_levels(trace: ScoreTrace, caps: Sequence[Caps]) -> Levels:
    graphics = trace.load(cores.GRAPHICS)
    assert graphics is not None
    sm, breadth_assumed = _or_else(trace.load(cores.SM), graphics)
    ipc = trace.load(cores.SOL)
    depth = None
    if ipc is not None:
        rate = _scaled(ipc, [cap.pipe["instructions"] for cap in caps])
        assert rate is not None
        depth = np.minimum(np.float32(1), sm * rate)
    sol, depth_assumed = _or_else(depth, sm)
    seen = ~_never(graphics)
    assumed = [name for name, of in (("breadth", breadth_assumed), ("depth", depth_assumed)) if (of & seen).any()]
    return Levels(graphics, sm, sol, sol if ipc is not None else None, None, tuple(assumed), ())


class _Pipes:
    """Reads pipes and DRAM, each once.

    Attributes:
        means: of each in windows, where there are windows.
        lacking: those that some device that was `seen` never measured; fp16 is not missed, few sources know it.
    """

    def __init__(self, trace: ScoreTrace, caps: Sequence[Caps], cut: WindowCut, seen: np.ndarray) -> None:
        self._trace, self._caps, self._cut, self._seen = trace, caps, cut, seen
        self.means: dict[str, np.ndarray] = {}
        self.lacking: list[str] = []

    def greatest(self) -> np.ndarray | None:
        """Return P: the greatest of the pipes over their caps; a pipe that a device never measured does not count for it."""
        best = None
        for name, metric in PIPES.items():
            values = self._trace.load(metric)
            if name == "tensor":
                values = _tensor(self._trace, values)
            self._note(name, values, "" if name == "fp16" else f"{name} pipe")
            scaled = _scaled(values, [cap.pipe.get(name, 1.0) for cap in self._caps])
            best = scaled if best is None else _greater(best, scaled)
        return best

    def dram(self) -> np.ndarray | None:
        """Return D: DRAM over its cap."""
        values = self._trace.load(DRAM)
        self._note("dram", values, "DRAM")
        return _scaled(values, [cap.dram for cap in self._caps])

    def _note(self, name: str, values: np.ndarray | None, called: str) -> None:
        if values is not None:
            self.means[name] = self._cut.mean(values)
        if called and (_never(values) & self._seen).any():
            self.lacking.append(called)


def _tensor(trace: ScoreTrace, whole: np.ndarray | None) -> np.ndarray | None:
    if whole is not None and np.isfinite(whole).any():
        return whole
    total = None
    for metric in TENSOR_PARTS:
        values = trace.load(metric)
        if values is not None and np.isfinite(values).any():
            total = values if total is None else total + values
    return whole if total is None else np.minimum(total, np.float32(1))


def _never(values: np.ndarray | None) -> np.ndarray:
    """Return by device whether it was never measured; [True] for all of them where there is nothing."""
    return np.ones(1, dtype=bool) if values is None else ~np.isfinite(values).any(axis=0)


def _greater(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """Return the greater value; a device that was never measured by one of them has the other's, else NaN stays NaN."""
    if one is None or other is None:
        return other if one is None else one
    greater: np.ndarray = np.maximum(one, other)
    for never, values in ((_never(one), other), (_never(other), one)):
        if never.any():
            greater[:, never] = values[:, never]
    return greater


def _or_else(values: np.ndarray | None, otherwise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values, those of devices that were never measured replaced; and by device whether they were."""
    if values is None:
        return otherwise, np.ones(otherwise.shape[1], dtype=bool)
    never = _never(values)
    if never.any():
        values = values.copy()
        values[:, never] = otherwise[:, never]
    return values, never


def _first_of(one: np.ndarray | None, other: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    if one is None and other is None:
        return np.full(shape, np.nan, dtype=np.float32)
    if one is None or other is None:
        found = other if one is None else one
        assert found is not None
        return found
    return _or_else(one, other)[0]


def _scaled(values: np.ndarray | None, caps: Sequence[float]) -> np.ndarray | None:
    return None if values is None else values / np.asarray(caps, dtype=np.float32)
