"""What being recorded costs a command: the time to start it, and the pace of a training loop with and without sampling.

python benchmarks/record_overhead.py
python benchmarks/record_overhead.py --starts 50 --loops 10 --seconds 20

Alternates the ways within each round, so that what else the machine does hits all alike, and gives the medians and their
differences round by round. `time` is from fork to exit of `true`; the loop multiplies matrices in pure Python on each CPU
and counts its steps; the sampler's CPU time and memory are read from /proc before it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = """
import os, sys, time
workers = [os.fork() for _ in range(len(os.sched_getaffinity(0)) - 1)]
n = 24
a = [[i * j % 7 + 0.5 for j in range(n)] for i in range(n)]
steps, end = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    b = [[sum(x * y for x, y in zip(row, column)) for column in zip(*a)] for row in a]
    steps += 1
if not workers or all(workers):
    for worker in workers:
        os.waitpid(worker, 0)
    print(steps)
"""
WAYS = {
    "alone": None,
    "1 Hz": ["--interval", "1s"],
    "10 Hz": ["--interval", "100ms"],
    "10 Hz, threads": ["--interval", "100ms", "--threads"],
}


def recorded(options: list[str] | None, folder: Path, command: list[str], face: str) -> list[str]:
    """Return a command line with or without a recorder in front."""
    if options is None:
        return command
    return [sys.executable, "-m", face, *(["record"] if face == "cordee.faces.cli" else []), "-q", "-o", str(folder), *options,
            "--", *command]  # fmt: skip


def started_s(argv: list[str]) -> float:
    """Return the seconds from fork to exit."""
    began = time.perf_counter()
    subprocess.run(argv, check=True)
    return time.perf_counter() - began


def steps_of(argv: list[str], folder: Path, seconds: float) -> tuple[int, float, float]:
    """Return the loop's steps, and the sampler's CPU seconds per second and resident bytes; 0 where there is none."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    cpu_s = rss_bytes = 0.0
    time.sleep(seconds * 0.9)
    for path in folder.glob("recorders/[0-9]*.json"):
        pid = json.loads(path.read_text())["pid"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") / lived_s
        rss_bytes = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return int(process.communicate()[0]), cpu_s, rss_bytes


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--loops", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="record-overhead-"))
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # an installed package is compiled once
        os.environ["PYTHONPYCACHEPREFIX"] = str(base / "compiled")
    number = 0

    def fresh() -> Path:
        nonlocal number
        number += 1
        return base / str(number)

    try:
        faces = {
            "alone": None,
            "cordee record": "cordee.faces.cli",
            "python -m cordee.telemetry.node.record": "cordee.telemetry.node.record",
        }
        times: dict[str, list[float]] = {name: [] for name in faces}
        for _ in range(options.starts):
            for name, face in faces.items():
                argv = recorded(None if face is None else [], fresh(), ["true"], face or "")
                times[name].append(started_s(argv))
            time.sleep(0.3)  # the samplers of this round close their recordings
        print(
            f"| start of `true`, {options.starts} rounds | median ms | over alone, median ms | worst ms |\n|---|---|---|---|"
        )
        for name, found in times.items():
            more = [1e3 * (one - alone) for one, alone in zip(found, times["alone"], strict=True)]
            print(
                f"| {name} | {1e3 * statistics.median(found):.0f} | {statistics.median(more):.0f} | {max(more):.0f} |"
            )
        rows: dict[str, list[tuple[int, float, float]]] = {name: [] for name in WAYS}
        for _ in range(options.loops):
            for name, ours in WAYS.items():
                folder = fresh()
                command = [sys.executable, "-c", LOOP, str(options.seconds)]
                rows[name].append(
                    steps_of(recorded(ours, folder, command, "cordee.telemetry.node.record"), folder, options.seconds)
                )
        print(
            f"\n| loop on all CPUs, {options.loops} x {options.seconds:g} s | steps, median | slower than alone, median (worst) |"
            " sampler, share of a core | MB |\n|---|---|---|---|---|"
        )
        for name, found in rows.items():
            slower = [1 - one[0] / alone[0] for one, alone in zip(found, rows["alone"], strict=True)]
            steps, cpu, rss = (statistics.median(one[at] for one in found) for at in range(3))
            print(
                f"| {name} | {steps:.0f} | {statistics.median(slower):.2%} ({max(slower):.2%}) | {cpu:.2%} | {rss / 1e6:.0f} |"
            )
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
