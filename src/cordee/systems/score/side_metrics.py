"""What stands beside the score and is never multiplied into it: balance, clocks, energy, MFU, rates, confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordee.systems.score.identity import Levels
from cordee.systems.score.result import Caps, ScorePart, ScoreShares
from cordee.telemetry.store.reduce import energy

if TYPE_CHECKING:
    from cordee.systems.score.trace.model import ScoreTrace

# Amounts that ranks log per step; what ends with _per_s is a rate already.
AMOUNTS = ("tokens", "samples", "flops")
_USED = 0.05


def balance(devices: Sequence[ScorePart]) -> float | None:
    """Return the mean of the devices' scores over the greatest (0-1); None with less than two, or when all are 0."""
    scores = [part.shares.score for part in devices if part.shares.score is not None]
    if len(scores) < 2 or max(scores) <= 0:
        return None
    return float(np.mean(scores)) / max(scores)


def clock_ratio(trace: ScoreTrace, levels: Levels) -> float | None:
    """Return the clock of the SMs over its maximum (0-1), the time weighted by use; None when not measured."""
    clock, most = trace.load("gpu_clock_sm_hertz"), trace.load("gpu_clock_sm_max_hertz")
    if clock is None or most is None:
        return None
    there = np.isfinite(clock) & np.isfinite(most) & (most > 0) & (levels.graphics > _USED)
    if not there.any():
        return None
    use = levels.graphics[there]
    return float((clock[there] / most[there] * use).sum(dtype=np.float64) / use.sum(dtype=np.float64))


def energy_joules(trace: ScoreTrace, levels: Levels) -> tuple[float | None, str]:
    """Return the energy of the devices over the samples that say it, and a remark where those are not all.

    Of cores it is that of the CPU packages of the nodes.
    """
    if trace.kind == "gpu":
        power = trace.load("gpu_power_watts")
    else:
        power = None if trace.node is None else trace.node.load("cpu_power_watts")
    if power is None or not np.isfinite(power).any():
        return None, ""
    there = np.isfinite(power)
    joules, _ = energy(power, trace.cadence_s)
    used = np.isfinite(levels.graphics)
    share = float(there[used].mean()) if there.shape == used.shape and used.any() else float(there.mean())
    return joules, "" if share > 0.95 else f"energy is that of {share:.0%} of the samples: the others say no power"


def rates(trace: ScoreTrace, seconds: float) -> dict[str, float]:
    """Return what the application logged, per second over the whole job, summed over ranks.

    `tokens`, `samples` and `flops` are amounts per step; names that end with `_per_s` are rates, of which the mean counts.
    `flops_per_token` makes FLOP/s of tokens.
    """
    found: dict[str, float] = {}
    for name, logged in trace.logged.items():
        values = logged.values[np.isfinite(logged.values)]
        if not len(values):
            continue
        if name in AMOUNTS and seconds > 0:
            found[f"{name}_per_s"] = float(values.sum()) / seconds
        elif name.endswith("_per_s"):
            found.setdefault(name, float(values.mean()))
    each = trace.logged.get("flops_per_token")
    if each is not None and "tokens_per_s" in found and "flops_per_s" not in found:
        ranks = max(1, int(trace.facts.get("logged_ranks", {}).get("flops_per_token", 1)))
        values = each.values[np.isfinite(each.values)]
        if len(values):
            found["flops_per_s"] = found["tokens_per_s"] * float(values.mean()) / ranks
    return found


def mfu(trace: ScoreTrace, caps: Sequence[Caps], per_second: dict[str, float]) -> tuple[float | None, str]:
    """Return achieved over peak FLOP/s of all devices, and a remark where FLOPs were logged but no peak is known.

    Args:
        caps: of each device.
    """
    achieved = per_second.get("flops_per_s")
    if achieved is None or trace.kind != "gpu":
        return None, ""
    peaks = [cap.peak_flops for cap in caps]
    unknown = sorted({cap.model or "a GPU without a name" for cap in caps if cap.peak_flops is None})
    if unknown or not peaks:
        return (
            None,
            f"no MFU: the peak of {', '.join(unknown)} is not known; tflops_bf16 in [gpu.MODEL] of the profile, or peak_flops in --caps FILE, says it",
        )
    peak = sum((peak or 0.0) * device.share for peak, device in zip(peaks, trace.devices, strict=True))
    peak *= max(1.0, (trace.job.allocated or 0) / len(trace.devices))
    return achieved / peak, ""


def confidence(trace: ScoreTrace, levels: Levels, shares: ScoreShares, caps: Sequence[Caps]) -> tuple[float, list[str]]:
    """Return how far the score can be trusted (0-1), and what lowers it.

    A product of factors, each 1 unless something is wanting: breadth not measured 0.7; depth not measured 0.6; tensor
    pipe or DRAM not measured 0.8 each, fp64 or fp32 pipe 0.95 each; coverage below 95 %: coverage / 0.95; n samples of a device: n / (n + 10); samples more than 2 s apart
    0.9, more than 15 s 0.8, more than 60 s 0.6; caps that are the fallback 0.9; GPUs shared with others: 1 - half their share.
    """
    if shares.score is None:
        return 0.0, ["nothing was measured"]
    factors: list[tuple[float, str]] = []
    if "breadth" in levels.assumed:
        factors.append((0.7, "breadth was not measured and counts as 1: the score is an upper bound"))
    if "depth" in levels.assumed:
        factors.append((0.6, "depth was not measured and counts as 1: the score is an upper bound"))
    elif any(not cap.measured for cap in caps):
        factors.append((0.9, "caps are the fallback and were not measured on this model"))
    for name in levels.lacking:
        factors.append(
            (0.8 if name in ("tensor pipe", "DRAM") else 0.95, f"{name} not measured: depth is a lower bound")
        )
    if shares.coverage < 0.95:
        factors.append((shares.coverage / 0.95, f"{shares.coverage:.0%} of the allocated device time was measured"))
    samples = shares.device_seconds / trace.cadence_s / float(sum(device.share for device in trace.devices))
    if samples < 100:
        factors.append((samples / (samples + 10), f"only {samples:.0f} samples of each device"))
    for apart, factor in ((60.0, 0.6), (15.0, 0.8), (2.0, 0.9)):
        if trace.cadence_s > apart:
            factors.append((factor, f"samples are {trace.cadence_s:g} s apart: short phases are not seen"))
            break
    shared = sum(1 for device in trace.devices if device.shared)
    if shared:
        text = f"{shared} of {len(trace.devices)} devices were used by others too, whose work is in the score"
        factors.append((1 - 0.5 * shared / len(trace.devices), text))
    value = 1.0
    for factor, _ in factors:
        value *= factor
    return value, [text for _, text in factors]
