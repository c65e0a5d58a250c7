"""Measure what it costs to see whether ranks go on: the thread in each rank, and the looks of the agent.

`python benchmarks/pulse.py [--seconds N] [--pairs N] [--ranks N]` prints Markdown tables. Real ranks of a world of one, with
a real torch and Gloo, sleep for the same time with and without the pulse, in pairs; what they use of the processor then is what
the kernel says. A beat is timed by itself as well, with 1 and 64 process groups. The agent's looks are timed at ranks that go on and at ranks that stand.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.testing.runs.watched_ranks import WatchedRanks, make_node_zip, watching

RANK = """
import os, resource, sys, time
import torch, torch.distributed as dist
seconds, groups = float(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store-{os.getpid()}", rank=0, world_size=1)
made = [dist.new_group([0]) for _ in range(groups - 1)]
for group in [None, *made]:
    dist.all_reduce(torch.ones(1), group=group)
time.sleep(2)
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
before = used()
time.sleep(seconds)
slept = (used() - before) / seconds
resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
beat = 0.0
if os.environ.get("CORDEE_PULSE"):
    from cordee.client.pulse import _PulseThread
    thread = _PulseThread(os.environ["CORDEE_PULSE"])
    began = time.thread_time()
    for _ in range(500):
        thread._beat()
    beat = (time.thread_time() - began) / 500
print(slept, resident, beat, flush=True)
dist.destroy_process_group()
"""


def rank(folder: Path, node_zip: Path, seconds: float, groups: int, pulse: bool) -> tuple[float, float, float]:
    """Return of one rank the share of a core, KiB resident, and seconds of a beat."""
    env = {**os.environ, "PYTHONPATH": str(node_zip), "CORDEE_CHANNEL": str(folder / "channel"), "CORDEE_ATTEMPT": "1"}
    if pulse:
        env["CORDEE_PULSE"] = str(folder)
    command = [sys.executable, "-c", RANK, str(seconds), str(groups)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)
    share, resident, beat = map(float, done.stdout.split())
    return share, resident, beat


def ranks_by_themselves(seconds: float, pairs: int) -> None:
    """Print what the thread costs."""
    print(
        "| process groups | share of a core without | with | more (median of pairs) | a beat | memory |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as name:
        node_zip = make_node_zip(Path(name))
        for groups in (1, 64):
            found = [[rank(Path(name), node_zip, seconds, groups, on) for on in (False, True)] for _ in range(pairs)]
            off, on = (statistics.median(pair[side][0] for pair in found) for side in (0, 1))
            more = statistics.median(pair[1][0] - pair[0][0] for pair in found)
            memory = statistics.median(pair[1][1] - pair[0][1] for pair in found)
            beat = statistics.median(pair[1][2] for pair in found)
            print(
                f"| {groups} | {off:.3%} | {on:.3%} | {more:.3%} | {beat * 1e6:.0f} µs | {memory:.0f} KiB |", flush=True
            )


def agent(count: int) -> None:
    """Print what a look of the agent costs."""
    looks = 200

    def timed(ranks: WatchedRanks, goes_on: bool) -> float:
        began, now = time.thread_time(), time.monotonic()
        first = 0 if goes_on else looks
        for look in range(first, first + looks):
            if goes_on:
                ranks.steps = dict.fromkeys(range(count), look)
            ranks.companion.look(now + look)
        return (time.thread_time() - began) / looks

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "packages" / "torch").mkdir(parents=True)
        (folder / "packages" / "torch" / "__init__.py").touch()

        async def during(ranks: WatchedRanks) -> None:
            for one in range(count):
                ranks.start(one, "-c", "import torch, time; time.sleep(600)", packages=folder / "packages")
            await ranks.until(lambda: len(list(ranks.meeting.glob("*.pulse"))) == count)
            await asyncio.sleep(1)
            for goes_on, text in ((True, "go on"), (False, "stand")):
                print(f"| {count} ranks that {text} | {timed(ranks, goes_on) * 1e3:.2f} ms |")

        print("\n| a look of the agent, each second | processor time |\n|---|---|")
        watching(folder, make_node_zip(folder), during)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=8)
    options = parser.parse_args()
    ranks_by_themselves(options.seconds, options.pairs)
    agent(options.ranks)


if __name__ == "__main__":
    main()
