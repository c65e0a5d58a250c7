"""Measure how many short tasks a farm starts in a second, beside xargs without a journal, in turns on the same machine.

`python benchmarks/farm.py [--tasks N] [--repetitions N] [--large N]` prints Markdown. Each repetition runs `true` N times by
`xargs -P CORES -I{} sh -c {}` and by `cordee farm`, one after the other; the ratio is of their rates, so that a busy machine slows
both. A farm's time is from the first task that was given to the last end in its journal, which is durable then; what the command
takes in all, with submission, vetting and report, stands beside it. With --peers GNU parallel with its job log, HyperQueue, disBatch and
submitit run it in the same turns, those that are there (`pip install hyperqueue disbatch submitit`), slow ones fewer tasks. With --large one farm of so many tasks is run besides, with the
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


def farm(folder: Path, tasks: int) -> tuple[dict[str, Any], float, int, float]:
    """Return a farm's document, the seconds that its command took, the most memory of its supervisor, and the seconds to the first task."""
    (folder / "tasks.txt").write_text("true\n" * tasks)
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak[0] = max(peak[0], *(_peak(pid) for pid in _supervisors(folder)), 0)

    watching = threading.Thread(target=watch)
    watching.start()
    began, moment = time.monotonic(), time.time()
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
    document = json.loads(done.stdout)
    journal = read_journal(folder / "runs" / document["run"] / "tasks" / "journal")
    given = next(event for event in journal if event["event"] == "tasks_given")
    return document, seconds, peak[0], parse_utc(given["time"]) - moment


_HYPERQUEUE = """
import sys, time
from pathlib import Path
from hyperqueue import Client, Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
count, cores = int(sys.argv[1]), int(sys.argv[2])
with LocalCluster(Path("hq")) as cluster:
    cluster.start_worker(WorkerConfig(cores=cores))
    client = cluster.client()
    job = Job()
    for _ in range(count):
        job.program(["sh", "-c", "true"], stdout=None, stderr=None)
    began = time.monotonic()
    client.wait_for_jobs([client.submit(job)], progress=False)
    print(time.monotonic() - began, flush=True)
"""
_SUBMITIT = """
import sys, time, submitit
executor = submitit.LocalExecutor(folder="submitit")
executor.update_parameters(timeout_min=5)
began = time.monotonic()
with executor.batch():
    jobs = [executor.submit(submitit.helpers.CommandFunction(["true"])) for _ in range(int(sys.argv[1]))]
[job.result() for job in jobs]
print(time.monotonic() - began, flush=True)
"""


def _said(folder: Path, *command: str) -> float:
    """Return the seconds that a script says it took: without its start."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _whole(folder: Path, *command: str, tasks: int = 0) -> float:
    """Return the seconds that a command took, which reads so many tasks from its standard input."""
    began = time.monotonic()
    subprocess.run(command, cwd=folder, input="true\n" * tasks, capture_output=True, text=True, check=True)
    return time.monotonic() - began


def peers(folder: Path, tasks: int) -> dict[str, float]:
    """Return how many tasks a second each peer that is there runs."""
    cores, found = str(os.cpu_count()), {}
    (folder / "peers.txt").write_text("true\n" * (tasks // 10))
    ways = {
        "GNU parallel --joblog": (
            tasks,
            lambda n: _whole(folder, "parallel", "--will-cite", "--joblog", "log", "-j", cores, tasks=n),
        ),
        "HyperQueue": (tasks, lambda n: _said(folder, sys.executable, "-c", _HYPERQUEUE, str(n), cores)),
        "disBatch": (tasks // 10, lambda n: _whole(folder, "disBatch", "-s", f"localhost:{cores}", "peers.txt")),
        "submitit, local": (tasks // 50, lambda n: _said(folder, sys.executable, "-c", _SUBMITIT, str(n))),
    }
    for name, (count, run) in ways.items():
        try:
            found[name] = count / run(count)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{name}: {error} {getattr(error, 'stderr', '')}"[-600:], file=sys.stderr)
    return found


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
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}\n")
    print(
        "| repetition | xargs, tasks/s | farm, tasks/s | ratio | to the first task, s | whole command, s |\n|---|---|---|---|---|---|"
    )
    ratios: list[float] = []
    others: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="cordee-farm-") as name:
        folder = Path(name)
        for repetition in range(options.repetitions):
            bare = options.tasks / xargs_s(folder, options.tasks)
            document, seconds, _, start = farm(folder, options.tasks)
            rate = options.tasks / document["seconds"]
            ratios.append(rate / bare)
            if options.peers:
                others.append(peers(folder, options.tasks))
            print(
                f"| {repetition + 1} | {bare:.0f} | {rate:.0f} | {rate / bare:.2f} | {start:.2f} | {seconds:.1f} |",
                flush=True,
            )
        print(f"\nMedian ratio {statistics.median(ratios):.2f}.")
        for name in dict.fromkeys(name for turn in others for name in turn):
            print(f"\n{name}: {', '.join(f'{turn[name]:.1f}' for turn in others if name in turn)} tasks a second.")
        if options.large:
            document, seconds, peak, _ = farm(folder, options.large)
            first, last = tenths(folder, document["run"])
            print(
                f"\n{options.large} tasks: {document['done']} done in {document['seconds']:.1f} s, {options.large / document['seconds']:.0f} a second; "
                f"{first:.0f} a second in the first tenth, {last:.0f} in the last; the supervisor had at most {peak / 1e6:.0f} MB; the command took {seconds:.1f} s."
            )


if __name__ == "__main__":
    main()
