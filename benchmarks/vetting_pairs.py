"""How well the pair test finds slow nodes and how seldom it blames others: prints a Markdown table.

    python benchmarks/vetting_pairs.py [--nodes 4 8 16 64 256 1024 4096] [--slowness 0.2 0.1 0.05] [--trials 20000]
        [--ratio 0.88]

Simulated: 3 % noise, 5 % of the measurements meet a dip to 40-90 %, 1.2 % of the nodes, at least one, are slow.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from random import Random
from typing import NamedTuple

from cordee.systems.vetting.node.judge.pairs import PairPolicy, PairTest
from support.hosts.fabric import SimulatedFabric

SICK_RATIO = 0.012


class Score(NamedTuple):
    """What became of all trials of one size and slowness."""

    trials: int
    sick: int
    found: int
    healthy: int
    blamed: int
    confused: int
    links: int
    seconds: float


def measure(nodes: int, slowness: float, trials: int, ratio: float) -> Score:
    """Run trials of one kind, each with its own seed."""
    names = [f"n{index}" for index in range(nodes)]
    sick_count = max(1, round(SICK_RATIO * nodes))
    found = blamed = confused = links = 0
    started = time.perf_counter()
    for trial in range(trials):
        seed = f"{nodes}-{slowness}-{trial}"
        sick = set(Random(seed).sample(names, sick_count))
        fabric = SimulatedFabric(slow=dict.fromkeys(sick, 1 - slowness), seed=seed)
        outcome = fabric.run(PairTest(names, seed, policy=PairPolicy(ratio=ratio)))
        failed = {name for name, result in outcome.results.items() if result["status"] == "fail"}
        found += len(failed & sick)
        blamed += len(failed - sick)
        confused += bool(outcome.confused)
        links += len(outcome.links)
    seconds = (time.perf_counter() - started) / trials
    return Score(trials, trials * sick_count, found, trials * (nodes - sick_count), blamed, confused, links, seconds)


def main() -> None:
    """Print one row for each size and slowness."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 16, 64, 256, 1024, 4096])
    parser.add_argument("--slowness", type=float, nargs="+", default=[0.2, 0.1, 0.05])
    parser.add_argument("--trials", type=int, default=20000, help="of 4 nodes; fewer of more nodes, 20 at least")
    parser.add_argument(
        "--ratio", type=float, default=PairPolicy.ratio, help="of the reference, below which a node is slow"
    )
    given = parser.parse_args()
    print(f"`{' '.join(['python', *sys.argv])}`, Python {platform.python_version()}\n")
    print(
        "| N | slower by | trials | recall | false exclusions | per vetting | confused | links blamed per vetting | time of the test |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for slowness in given.slowness:
        for nodes in given.nodes:
            score = measure(nodes, slowness, max(20, given.trials * 4 // nodes), given.ratio)
            print(
                f"| {nodes} | {slowness:.0%} | {score.trials} | {score.found / score.sick:.2%} | "
                f"{score.blamed / score.healthy:.4%} | {score.blamed / score.trials:.4f} | {score.confused / score.trials:.2%} | "
                f"{score.links / score.trials:.3f} | {1e3 * score.seconds:.2g} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
