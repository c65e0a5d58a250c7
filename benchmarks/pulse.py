"""Measure what it costs to see whether ranks go on: the thread in each rank, and the looks of the agent.

`python benchmarks/pulse.py [--seconds N] [--pairs N] [--ranks N]` prints Markdown tables. Real ranks of a world of one, with
a real torch and Gloo, sleep for the same time with and without the pulse, in pairs; what they use of the processor then is what
the kernel says. A beat is timed by itself as well, with 1 and 64 process groups. The agent's looks are timed at ranks that go on and at ranks that stand.
Then what it costs to look at what ranks do with their time: the thread of a rank that sleeps and of one that computes, in turn with
and without, and for an agent the digests of 8 and 128 ranks and a look at the connections of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.systems.explain.node.pulses import RankProcess
from cordee.systems.explain.node.rank_times import RankTimes
from cordee.systems.explain.node.slow_links import SlowLinks
from cordee.wire.messages import Telemetry, encode
from cordee.wire.pulse import KINDS, KindSums, PulseReader, PulseWriter, TimeSums
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

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

LOOKED_AT = """
import os, sys, threading, time
import torch, torch.distributed as dist
from cordee.wire.pulse import PulseReader
seconds, folder = float(sys.argv[1]), os.environ["CORDEE_PULSE"]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store-{os.getpid()}", rank=0, world_size=1)
time.sleep(1.5)
(name,) = [name for name in os.listdir(folder) if name.endswith(f"-{os.getpid()}.pulse")]
reader = PulseReader(os.path.join(folder, name))
(thread,) = [one.native_id for one in threading.enumerate() if one.name == "cordee-pulse"]
used = lambda: int(open(f"/proc/self/task/{thread}/schedstat").read().split()[0]) / 1e9
matrix = torch.randn(256, 256)
def computes(until):
    while time.monotonic() < until:
        for _ in range(20):
            matrix @ matrix
        time.sleep(0.01)
def sleeps(until):
    time.sleep(until - time.monotonic())
for does in (sleeps, computes):
    does(time.monotonic() + 2)
    found = []
    for window in (0, 1):
        reader.want(window)
        does(time.monotonic() + 1.5)
        before = used()
        does(time.monotonic() + seconds)
        found.append((used() - before) / seconds)
    print(does.__name__, *found, flush=True)
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


def ranks_looked_at(seconds: float, pairs: int) -> None:
    """Print what looking at the time of a rank costs its thread."""
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        env = {**os.environ, "CORDEE_CHANNEL": f"{name}/channel", "CORDEE_ATTEMPT": "1", "CORDEE_PULSE": name}
        env["PYTHONPATH"] = str(make_node_zip(Path(name)))
        for _ in range(pairs):
            command = [sys.executable, "-c", LOOKED_AT, str(seconds)]
            done = subprocess.run(command, env=env, cwd=name, capture_output=True, text=True, check=True)
            for line in done.stdout.splitlines():
                does, off, on = line.split()
                found.setdefault(does, []).append((float(off), float(on)))
    print(
        "\n| the pulse's thread in a rank that | beats alone | and looks four times a second | most |\n|---|---|---|---|"
    )
    for does, shares in found.items():
        off, on = (statistics.median(pair[side] for pair in shares) for side in (0, 1))
        print(f"| {does} | {off:.3%} | {on:.3%} | {max(on for _, on in shares):.3%} |")


def digests(count: int) -> None:
    """Print what digests cost an agent in a window."""
    with tempfile.TemporaryDirectory() as name:
        writers = [PulseWriter(name, "1", False) for _ in range(count)]
        processes = [RankProcess(at, os.getpid(), 1, PulseReader(one.path), 0.0) for at, one in enumerate(writers)]
        times, windows = RankTimes(True), 50
        times.look(enumerate(processes), 0.0)
        spent_s, told_s, size = 0.0, 0.0, 0
        for window in range(1, windows + 1):
            kinds = tuple(KindSums(2_300_000_000 * window, 11 * window, 810_000_000, 1_900_000 * window) for _ in KINDS)
            for writer, process in zip(writers, processes, strict=True):
                writer.spent(TimeSums(window, 10_000_000_000 * window, 7 * window, 0, window, kinds), 20 * window)
                process.look(0.0)
            began = time.thread_time()
            for _ in range(9):
                times.look(enumerate(processes), 10.0 * window - 5)
            times.look(enumerate(processes), 10.0 * window)
            spent_s += time.thread_time() - began
            told = times.taken() or ()
            assert len(told) == count
            began = time.thread_time()
            size = len(json.dumps(encode(Telemetry(None, (), digests=told))))
            told_s += time.thread_time() - began
        print(
            f"| {count} ranks | {spent_s / windows * 1e3:.2f} ms | {told_s / windows * 1e3:.2f} ms | {size} bytes "
            f"| {(spent_s + told_s) / windows / 10:.3%} |"
        )


def links() -> None:
    """Print what a look at connections costs."""
    seen, looks = SlowLinks(), 50
    began = time.thread_time()
    for look in range(looks):
        seen.look(1000.0 * look)
    each_s = (time.thread_time() - began) / looks
    count = sum(len(Path(f"/proc/net/{table}").read_text().splitlines()) - 1 for table in ("tcp", "tcp6"))
    print(f"\nA look at the connections ({count} sockets on this machine): {each_s * 1e3:.2f} ms.")


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
    ranks_looked_at(options.seconds, options.pairs)
    print("\n| digests of | a window of 10 s | as JSON | size | share of a core |\n|---|---|---|---|---|")
    for count in (8, 128):
        digests(count)
    links()


if __name__ == "__main__":
    main()
