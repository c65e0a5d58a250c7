"""How far are time, breadth and depth of replayed duty cycles from the truth?

    python benchmarks/score_duty_cycles.py [--seeds 5]

Synthetic recordings (support.recordings.workloads) of a GPU that works with known breadth and pipe for a known part of
each step, with a start, correlated noise, quantisation and gaps, at 1 Hz and 10 Hz, with steps shorter and longer than a
sample; each goes through a folder on disk and the loader. Printed is the largest error in points over the seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from cordee.systems.score.load import load
from cordee.systems.score.score import score
from support.recordings.scenarios import CALM, GEMM, REST, Scenario, StepPhase
from support.recordings.workloads import MadeNoise, cut, write_scenario

DUTIES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
WORK = ((0.98, 0.86), (0.5, 0.3), (0.9, 0.45))
STEPS_S = (0.05, 0.83, 7.3)
CADENCES_S = (1.0, 0.1)


def errors(duty: float, breadth: float, pipe: float, step_s: float, cadence_s: float, seed: int) -> tuple[float, ...]:
    """Return the errors of time, breadth, depth and score, in points."""
    work = {**GEMM, "sm": breadth, "tensor": pipe, "tensor_hmma": pipe, "dram": 0.1}
    phases = (StepPhase(duty, work, CALM), StepPhase(1.0 - duty, REST, CALM))
    of = Scenario("duty", ("mixed",), "tuned", phases, step_s=step_s)
    with tempfile.TemporaryDirectory() as scratch:
        noise = MadeNoise(variety=0.0)
        made = write_scenario(of, Path(scratch) / "r", seed=seed, seconds=150, cadence_s=cadence_s, noise=noise)
        found = score(cut(load(made.folder), made.began, made.ended))
    full = pipe / found.caps[0].pipe["tensor"]
    truth = (duty, breadth, full / breadth, duty * full)
    shares = found.shares
    measured = (shares.time, shares.breadth, shares.depth, None if shares.score is None else shares.score / 100)
    return tuple(100 * abs((one or 0.0) - other) for one, other in zip(measured, truth, strict=True))


def main() -> None:
    """Print the largest errors as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print("| sample | step | duty | time | breadth | depth | score |\n|---|---|---|---|---|---|---|")
    worst = 0.0
    for cadence_s in CADENCES_S:
        for step_s in STEPS_S:
            for duty in DUTIES:
                tried = [
                    errors(duty, breadth, pipe, step_s, cadence_s, seed)
                    for breadth, pipe in WORK
                    for seed in range(asked.seeds)
                ]
                largest = [max(column) for column in zip(*tried, strict=True)]
                worst = max(worst, *largest)
                cells = " | ".join(f"{value:.2f}" for value in largest)
                print(f"| {cadence_s:g} s | {step_s:g} s | {duty:g} | {cells} |")
    print(f"\nLargest error: {worst:.2f} points (allowed: 3)")


if __name__ == "__main__":
    main()
