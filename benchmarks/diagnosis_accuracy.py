"""How often is the diagnosis right? Made workloads with noise, tuned and held-out halves apart, beside KempnerPulse's classes.

    python benchmarks/diagnosis_accuracy.py [--seeds 5] [--seconds 180] [--kempnerpulse PYTHON]

The recordings are synthetic (support.recordings.workloads): levels that ground truths predict, start, steps, correlated
noise, quantisation, gaps, GPUs that differ; each goes through a folder on disk, the loader and the rules like any other.
Windows of the labelled time are judged, one per device. PYTHON is an interpreter in which `pip install kempnerpulse` was
done: its own `classify` gets the same samples, one by one, and its most frequent class of each window counts. It has
twelve classes of its own and no metrics of the host: RIGHT_FOR_KEMPNERPULSE says which of its classes are taken as right,
with the benefit of the doubt; classes that it has no word for are counted apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from cordee.systems.score.load import load
from cordee.systems.score.result import CLASSES, UNKNOWN
from cordee.systems.score.score import score
from support.recordings.scenarios import SCENARIOS
from support.recordings.workloads import Made, MadeNoise, write_scenario

NOISES = {
    "calm": MadeNoise(level=0.02, gaps=0.0, variety=0.03),
    "usual": MadeNoise(),
    "rough": MadeNoise(level=0.12, devices=0.04, gaps=0.08, variety=0.15),
}
RIGHT_FOR_KEMPNERPULSE = {
    "compute": {"TENSOR_HEAVY_COMPUTE", "TENSOR_COMPUTE", "FP64_HPC_COMPUTE", "COMPUTE_HEAVY", "COMPUTE_ACTIVE"},
    "memory": {"MEMORY_BOUND", "MEMORY_ACTIVE"},
    "transfer": {"IO_OR_DATA_LOADING"},
    "input": {"IO_OR_DATA_LOADING", "LOW_UTILIZATION"},
    "idle": {"IDLE"},
    "checkpoint": {"IDLE", "IO_OR_DATA_LOADING"},
    "launch": {"BUSY_LOW_SM_USE"},
    "communication": {"BUSY_LOW_SM_USE"},
    "latency": {"BUSY_LOW_SM_USE", "MIXED_OR_MODERATE"},
    "mixed": {"MIXED_OR_MODERATE", "COMPUTE_ACTIVE", "TENSOR_COMPUTE", "LOW_UTILIZATION"},
}
_METRICS = {
    "gpu_sm_ratio": "gpu_streaming_multiprocessor_active_cycle_fraction",
    "gpu_tensor_ratio": "gpu_tensor_core_pipe_active_cycle_fraction",
    "gpu_dram_ratio": "gpu_dram_controller_active_cycle_fraction",
    "gpu_graphics_ratio": "gpu_graphics_compute_engine_active_cycle_fraction",
    "gpu_fp64_ratio": "gpu_cuda_core_floating_point_64bit_pipe_active_cycle_fraction",
    "gpu_pcie_receive_bytes_per_second": "gpu_pcie_receive_throughput_bytes_per_second",
    "gpu_pcie_transmit_bytes_per_second": "gpu_pcie_transmit_throughput_bytes_per_second",
}
# Runs in the other interpreter: samples by line on standard input, one class a line on standard output.
_THEIRS = """
import json, sys
from types import SimpleNamespace
from kempnerpulse.compute.classify import classify
from kempnerpulse.compute.presets import PRESETS
from kempnerpulse.compute.real_util import real_util
empty = {"gpu_memory_copy_engine_busy_time_fraction": None, "gpu_nvml_busy_time_fraction": None}
for line in sys.stdin:
    record = SimpleNamespace(**empty, **json.loads(line))
    print(classify(record, real_util(record, PRESETS["ai"])).name)
"""


def windows_of(made: Made) -> tuple[list[str], list[list[dict[str, float | None]]]]:
    """Return our class of each labelled window and device, and the samples in it under KempnerPulse's names."""
    trace = load(made.folder)
    found = score(trace).windows
    values = {name: trace.load(name) for name in _METRICS}
    classes, samples = [], []
    for at, start in enumerate(found.starts):
        if start < made.began or start + found.length_s > made.ended + trace.cadence_s:
            continue
        rows = np.flatnonzero((trace.times >= start) & (trace.times < start + found.length_s))
        for device in range(len(trace.devices)):
            index = int(found.classes[at, device])
            classes.append(CLASSES[index] if index >= 0 else UNKNOWN)
            samples.append([_sample(values, row, device) for row in rows])
    return classes, samples


def _sample(values: dict[str, np.ndarray | None], row: int, device: int) -> dict[str, float | None]:
    sample: dict[str, float | None] = {}
    for name, theirs in _METRICS.items():
        table = values[name]
        value = np.nan if table is None else float(table[row, device])
        sample[theirs] = value if np.isfinite(value) else None
    return sample


def their_classes(python: str, windows: list[list[dict[str, float | None]]]) -> list[str]:
    """Return KempnerPulse's most frequent class of each window; samples without any value are left out."""
    kept = [[sample for sample in window if any(v is not None for v in sample.values())] for window in windows]
    lines = "\n".join(json.dumps(sample) for window in kept for sample in window) + "\n"
    done = subprocess.run([python, "-c", _THEIRS], input=lines, capture_output=True, text=True, check=True)
    said = iter(done.stdout.split())
    return [Counter([next(said) for _ in window]).most_common(1)[0][0] if window else UNKNOWN for window in kept]


def print_matrix(title: str, pairs: Counter[tuple[str, str]]) -> None:
    """Print rows of right classes and columns of found ones."""
    columns = sorted({found for _, found in pairs})
    print(f"\n{title}\n\n| right / found | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for right in [name for name in CLASSES if any(pair[0] == name for pair in pairs)]:
        print(f"| {right} | " + " | ".join(str(pairs[right, column] or ".") for column in columns) + " |")


def main() -> None:
    """Print accuracies and confusion matrices as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--noise", choices=[*NOISES, "all"], default="all")
    parser.add_argument("--half", choices=["tuned", "held out", "both"], default="both")
    parser.add_argument("--kempnerpulse", metavar="PYTHON", default="")
    asked = parser.parse_args()
    ours: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    theirs: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    right_theirs: Counter[str] = Counter()
    wrong: Counter[tuple[str, str, str]] = Counter()
    wanted = [of for of in SCENARIOS if asked.half in ("both", of.half)]
    for name in NOISES if asked.noise == "all" else [asked.noise]:
        for at, of in enumerate(wanted):
            for seed in range(asked.seeds):
                own = 1000 + seed if of.half == "tuned" else 9000 + seed
                with tempfile.TemporaryDirectory() as scratch:
                    made = write_scenario(of, Path(scratch) / "r", seed=own, seconds=asked.seconds, noise=NOISES[name])
                    classes, samples = windows_of(made)
                key = (of.half, name)
                for found in classes:
                    best = made.right[0] if found in made.right else found
                    ours.setdefault(key, Counter())[made.right[0], best] += 1
                    if found not in made.right:
                        wrong[of.half, of.name, found] += 1
                if asked.kempnerpulse:
                    allowed = set().union(*(RIGHT_FOR_KEMPNERPULSE[right] for right in made.right))
                    for found in their_classes(asked.kempnerpulse, samples):
                        theirs.setdefault(key, Counter())[made.right[0], found] += 1
                        right_theirs[of.half, name] += found in allowed
            print(f"{name} {at + 1}/{len(wanted)} {of.name}", file=sys.stderr)
    print("| half | noise | windows | right | KempnerPulse right |\n|---|---|---|---|---|")
    for key, pairs in ours.items():
        total = sum(pairs.values())
        right = sum(number for (truth, found), number in pairs.items() if truth == found)
        other = f"{right_theirs[key] / total:.1%}" if asked.kempnerpulse else "-"
        print(f"| {key[0]} | {key[1]} | {total} | {right / total:.1%} | {other} |")
    for half in dict.fromkeys(key[0] for key in ours):
        print_matrix(f"Cordée, {half}", sum((ours[key] for key in ours if key[0] == half), Counter()))
        if asked.kempnerpulse:
            print_matrix(f"KempnerPulse, {half}", sum((theirs[key] for key in theirs if key[0] == half), Counter()))
    print("\nWrong: " + (", ".join(f"{of} as {found} ({n})" for (_, of, found), n in wrong.most_common()) or "none"))


if __name__ == "__main__":
    main()
