"""What sampling costs: CPU per tick of the node's and the ranks' sampler, and its share of a core at 1 Hz.

python benchmarks/sampling.py --ranks 8 --children 4
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time

from cordee.telemetry.node.samplers.host import node_sampler, rank_sampler


def cpu_per_tick(sample, ticks: int) -> tuple[float, float]:
    """Return (median wall, mean CPU) seconds of a tick."""
    walls = []
    before = time.process_time()
    for _ in range(ticks):
        started = time.perf_counter()
        sample()
        walls.append(time.perf_counter() - started)
    return statistics.median(walls), (time.process_time() - before) / ticks


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--children", type=int, default=4)
    parser.add_argument("--ticks", type=int, default=200)
    options = parser.parse_args()
    script = "; ".join(["sleep 600 &"] * options.children).replace("&;", "&") + " wait"
    ranks = [subprocess.Popen(["bash", "-c", script], start_new_session=True) for _ in range(options.ranks)]
    try:
        time.sleep(0.5)
        pids = {rank: process.pid for rank, process in enumerate(ranks)}
        samplers = {
            "node": node_sampler("local-0"),
            "rank": rank_sampler(lambda: pids, 1.0),
            "rank, threads not looked at": rank_sampler(lambda: pids, 0.1),
        }
        rows = {name: cpu_per_tick(sampler.sample, options.ticks) for name, sampler in samplers.items()}
    finally:
        for process in ranks:
            os.killpg(process.pid, 9)
            process.wait()
    print(
        f"| sampler ({options.ranks} ranks, {options.children} children each) | median ms | CPU ms | share of a core at 1 Hz |\n|---|---|---|---|"
    )
    for name, (wall, cpu) in rows.items():
        print(f"| {name} | {wall * 1e3:.2f} | {cpu * 1e3:.2f} | {cpu:.2%} |")


if __name__ == "__main__":
    main()
