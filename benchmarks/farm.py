"""Measure how many short tasks a farm starts in a second, beside xargs without a journal, in turns on the same machine.

`python benchmarks/farm.py [--tasks N] [--repetitions N] [--large N]` prints Markdown. Each repetition runs `true` N times by
`xargs -P CORES -I{} sh -c {}` and by `cordee farm`, one after the other; the ratio is of their rates, so that a busy machine slows
both. A farm's time is from the first task that was given to the last end in its journal, which is durable then; what the command
takes in all, with submission, vetting and report, stands beside it. With --large one farm of so many tasks is run besides, with the
most memory that its supervisor had, and its rate in the first and last tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cordee.core.units import parse_utc
from cordee.runs.journal import read_journal


def xargs_s(folder: Path, tasks: int) -> float:
    """Return the seconds that xargs takes."""
    lines = "true\n" * tasks
    began = time.monotonic()
    subprocess.run(
        ["xargs", "-P", str(os.cpu_count()), "-I{}", "sh", "-c", "{}"], input=lines, text=True, cwd=folder, check=True
    )
    return time.monotonic() - began


def farm(folder: Path, tasks: int) -> tuple[dict[str, Any], float, int]:
    """Return a farm's document, the seconds that its command took, and the most memory of its supervisor."""
    (folder / "tasks.txt").write_text("true\n" * tasks)
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak[0] = max(peak[0], *(_peak(pid) for pid in _supervisors(folder)), 0)

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", "farm", "tasks.txt", "--json", "--set", "vet.max_load=1000.0"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    over.set()
    watching.join()
    return json.loads(done.stdout), seconds, peak[0]


def _supervisors(folder: Path) -> list[int]:
    found = []
    for record in folder.glob("runs/*/control/supervisor.json"):
        try:
            found.append(int(json.loads(record.read_text())["pid"]))
        except (OSError, ValueError, KeyError):
            continue
    return found


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def tenths(folder: Path, run: str) -> tuple[float, float]:
    """Return how many tasks ended in a second in the first and the last tenth of a farm."""
    events = read_journal(folder / "runs" / run / "tasks" / "journal")
    ends = [parse_utc(event["time"]) for event in events if event["event"] == "tasks_ended" for _ in event["ended"]]
    part = len(ends) // 10
    return part / (ends[part] - ends[0]), part / (ends[-1] - ends[-part - 1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--large", type=int, default=0)
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}\n")
    print("| repetition | xargs, tasks/s | farm, tasks/s | ratio | whole command, s |\n|---|---|---|---|---|")
    ratios = []
    with tempfile.TemporaryDirectory(prefix="cordee-farm-") as name:
        folder = Path(name)
        for repetition in range(options.repetitions):
            bare = options.tasks / xargs_s(folder, options.tasks)
            document, seconds, _ = farm(folder, options.tasks)
            rate = options.tasks / document["seconds"]
            ratios.append(rate / bare)
            print(f"| {repetition + 1} | {bare:.0f} | {rate:.0f} | {rate / bare:.2f} | {seconds:.1f} |", flush=True)
        print(f"\nMedian ratio {statistics.median(ratios):.2f}.")
        if options.large:
            document, seconds, peak = farm(folder, options.large)
            first, last = tenths(folder, document["run"])
            print(
                f"\n{options.large} tasks: {document['done']} done in {document['seconds']:.1f} s, {options.large / document['seconds']:.0f} a second; "
                f"{first:.0f} a second in the first tenth, {last:.0f} in the last; the supervisor had at most {peak / 1e6:.0f} MB; the command took {seconds:.1f} s."
            )


if __name__ == "__main__":
    main()
