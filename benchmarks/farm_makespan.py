"""Measure how long a farm takes over the shortest that its tasks could take: longest first with known durations, and in their own order.

    python benchmarks/farm_makespan.py --tasks 64 --seeds 3

Tasks sleep, as long as a lognormal distribution (sigma 0.6) says; two nodes of this machine have so many slots together as it has cores twice.
The ideal is the larger of all seconds over the slots and the longest task. What is measured is from the first task that was given to the last
end in the journal. The ideal of an order, computed without a machine, stands beside it: what is above that is ours.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SLOTS = 2 * len(os.sched_getaffinity(0))


def listed(durations: list[float], longest_first: bool) -> float:
    """Return the makespan of list scheduling."""
    slots = [0.0] * SLOTS
    for seconds in sorted(durations, reverse=True) if longest_first else durations:
        heapq.heapreplace(slots, slots[0] + seconds)
    return max(slots)


def farm(durations: list[float], longest_first: bool) -> float:
    """Return the seconds that a farm takes."""
    with tempfile.TemporaryDirectory(prefix="cordee-makespan-") as name:
        lines = (f"#cordee time={4 * seconds + 20:.2f}s\nsleep {seconds:.3f}\n" for seconds in durations)
        Path(name, "tasks.txt").write_text("".join(lines))
        order = "longest" if longest_first else "given"
        sets = ["--set", "vet.max_load=1000.0", "--set", f"farm.order={order}"]
        command = [sys.executable, "-m", "cordee.faces.cli", "farm", "tasks.txt", "--json", "--nodes", "2", *sets]
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return float(json.loads(done.stdout)["seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mean", type=float, default=2.0, help="seconds of a task, about")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {SLOTS} slots\n")
    print("| seed | order | ideal, s | list schedule / ideal | farm / ideal |\n|---|---|---|---|---|")
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(options.seeds):
        chance = random.Random(seed)
        durations = [options.mean * chance.lognormvariate(-0.18, 0.6) for _ in range(options.tasks)]
        ideal = max(sum(durations) / SLOTS, *durations)
        for longest_first in found:
            ratio = farm(durations, longest_first) / ideal
            found[longest_first].append(ratio)
            order = "longest first" if longest_first else "as given"
            print(f"| {seed} | {order} | {ideal:.1f} | {listed(durations, longest_first) / ideal:.3f} | {ratio:.3f} |")
    means = {one: statistics.mean(ratios) for one, ratios in found.items()}
    print(f"\nMean: longest first {means[True]:.3f}, as given {means[False]:.3f}.")


if __name__ == "__main__":
    main()
