"""How often equal jobs raise an alarm, and how small a loss is found: prints a Markdown table.

    python benchmarks/score_regression.py [--pairs 500] [--seconds 1800]

Jobs of 4 GPUs are made from numbers: SM activity has a level, a noise that all GPUs share and that remembers, and one of each
GPU; runs differ from each other by a little more than their own noise (`between`, as a share of the level). Each pair is a
baseline of several runs and a run of the same job, judged as `cordee score --against` does; then runs that lost some points of score.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time

import numpy as np

from cordee.systems.score.baselines.baseline import Baseline
from cordee.systems.score.baselines.judge import BETTER, SAME, UNKNOWN, WORSE, judge
from cordee.systems.score.baselines.observe import Observation, observe
from cordee.systems.score.diagnosis.rules import load_rules
from cordee.systems.score.roofs import read_caps
from cordee.systems.score.score import score
from cordee.systems.score.trace.model import ScoredDevice, ScoredJob, ScoreTrace

GPUS = 4
MODEL = "NVIDIA H100 80GB HBM3"
LEVEL = 0.6
CASES = (  # name, memory of the noise from one second to the next, its spread, difference between runs, runs of the baseline
    ("five runs, quiet", 0.5, 0.05, 0.002, 5),
    ("five runs, noise that remembers 10 s", 0.9, 0.05, 0.005, 5),
    ("five runs, noise that remembers 100 s", 0.99, 0.05, 0.005, 5),
    ("five runs, runs differ by 1 %", 0.9, 0.05, 0.01, 5),
    ("five runs, runs differ by 2 %", 0.9, 0.05, 0.02, 5),
    ("ten runs, runs differ by 2 %", 0.9, 0.05, 0.02, 10),
)
CAPS, RULES = read_caps(), load_rules()
LOSSES = (2.0, 5.0, 10.0)  # points of score


def remembering(chance: np.random.Generator, shape: tuple[int, ...], memory: float) -> np.ndarray:
    """Return series [time, ...] of mean 0 and spread 1 in which each value holds `memory` of the one before."""
    steps = chance.normal(size=shape) * math.sqrt(1 - memory**2)
    steps[0] = chance.normal(size=shape[1:])
    for at in range(1, shape[0]):
        steps[at] += memory * steps[at - 1]
    return steps


def job(
    chance: np.random.Generator, seconds: int, memory: float, spread: float, between: float, lost: float
) -> ScoreTrace:
    """Return a job whose score is about 100 x LEVEL - lost."""
    level = (LEVEL - lost / 100) * (1 + between * chance.normal())
    noise = 0.8 * remembering(chance, (seconds, 1), memory) + 0.6 * remembering(chance, (seconds, GPUS), memory)
    sol = np.clip(level + spread * noise, 0, 1).astype(np.float32)
    values = {
        "gpu_graphics_ratio": np.full(sol.shape, 0.97, dtype=np.float32),
        "gpu_sm_ratio": np.minimum(np.float32(0.97), sol / np.float32(0.75)),
        "gpu_tensor_ratio": sol * np.float32(CAPS.of(MODEL).pipe["tensor"]),
        "gpu_dram_ratio": np.full(sol.shape, 0.2, dtype=np.float32),
    }
    devices = [ScoredDevice(f"GPU-{at}", "n1", at, MODEL, (at,)) for at in range(GPUS)]
    times = 1_790_000_000.0 + np.arange(seconds)
    about = ScoredJob("made", started_at=float(times[0]), ended_at=float(times[-1]) + 1, world_size=GPUS, nodes=("n1",))
    return ScoreTrace(about, "gpu", "synthetic", 1.0, times, devices, values.get)


def seen(*given: float | int | np.random.Generator) -> Observation:
    """Return what `cordee score` sees of a made job."""
    trace = job(*given)  # type: ignore[arg-type]
    return observe(trace, score(trace, caps=CAPS, rules=RULES))


def verdicts(case: tuple[str, float, float, float, int], pairs: int, seconds: int, lost: float) -> dict[str, float]:
    """Return the share of each verdict over pairs of a baseline and a run that lost so many points."""
    name, memory, spread, between, runs = case
    counted = dict.fromkeys((WORSE, SAME, BETTER, UNKNOWN), 0)
    for pair in range(pairs):
        chance = np.random.default_rng([len(name), pair, int(lost * 10)])
        before = [seen(chance, seconds, memory, spread, between, 0.0) for _ in range(runs)]
        now = seen(chance, seconds, memory, spread, between, lost)
        counted[judge(now, Baseline("made", tuple(before), "", "")).verdict] += 1
    return {verdict: count / pairs for verdict, count in counted.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=1800)
    given = parser.parse_args()
    began = time.perf_counter()
    print(
        f"{given.pairs} pairs of {given.seconds} s, {GPUS} GPUs; {os.cpu_count()} cores, Python {platform.python_version()}\n"
    )
    heads = [
        "baseline",
        "false alarms",
        "said to be better",
        "not judged",
        *(f"found: -{lost:g} points" for lost in LOSSES),
    ]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for case in CASES:
        equal = verdicts(case, given.pairs, given.seconds, 0.0)
        found = [verdicts(case, max(1, given.pairs // 5), given.seconds, lost)[WORSE] for lost in LOSSES]
        shares = [equal[WORSE], equal[BETTER], equal[UNKNOWN], *found]
        print(f"| {case[0]} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
