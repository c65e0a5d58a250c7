"""How long a person waits: help, check, the first line of a run, and the way back after a kill.

    python benchmarks/startup.py --rounds 5

Everything is measured in turn with what it is compared with, and medians are printed. Machines are noisy: trust the ratios.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.runs.real_run import LocalRun

HELLO = "import sys, time\nsys.stdout.write(f'first {time.time()}\\n')\n"
STARTS = """
import os, sys, time
sys.stdout.write(f"up {os.environ['RANK']} {os.getpid()} {time.time()}\\n"); sys.stdout.flush()
time.sleep(600)
"""
CORDEE = [sys.executable, "-m", "cordee.faces.cli"]


def wall(command: list[str], cwd: Path) -> float:
    """Return the seconds that a whole process takes."""
    started = time.perf_counter()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def job(parent: Path, script: str, toml: str = "") -> Path:
    """Write a job of two nodes."""
    folder = parent / "job"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "cordee.toml").write_text(f'name = "b"\nrun = "python train.py"\n[need]\nnodes = 2\n{toml}')
    return folder


def first_line(folder: Path, runs: Path) -> tuple[float, float]:
    """Return seconds to the script's first line (by `cordee run`, alone)."""
    started = time.time()
    done = subprocess.run(
        [*CORDEE, "run", str(folder), "--runs", str(runs)], capture_output=True, text=True, check=True
    )
    ours = min(float(line.split()[-1]) for line in done.stdout.splitlines() if "first" in line) - started
    started = time.time()
    done = subprocess.run([sys.executable, str(folder / "train.py")], capture_output=True, text=True, check=True)
    return ours, float(done.stdout.split()[-1]) - started


def recovery(folder: Path, runs: Path) -> float:
    """Return seconds from kill -9 of rank 1 until both ranks of the next attempt have said that they are up."""
    with LocalRun(folder, runs) as run:
        run.wait_training()
        wait_for(lambda: run.output().count(b"up "), 2)
        killed = time.time()
        run.kill("rank 1")
        wait_for(lambda: run.output().count(b"up "), 4)
        times = [float(line.split()[3]) for line in run.output().decode().splitlines() if line.startswith("up ")]
        return max(times) - killed


def torchrun_recovery(folder: Path) -> float:
    """Return the same for torchrun with two local ranks and --max-restarts."""
    output = folder / "torchrun.out"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "2",
    ]
    with output.open("wb") as file:
        process = subprocess.Popen([*command, str(folder / "train.py")], stdout=file, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: output.read_bytes().count(b"up "), 2)
            pid = next(int(line.split()[2]) for line in output.read_text().splitlines() if line.startswith("up 1 "))
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: output.read_bytes().count(b"up "), 4)
            return (
                max(float(line.split()[3]) for line in output.read_text().splitlines() if line.startswith("up "))
                - killed
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def wait_for(count, least: int, seconds: float = 90.0) -> None:
    """Wait until `count()` is at least `least`."""
    deadline = time.monotonic() + seconds
    while count() < least:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count()} of {least}")
        time.sleep(0.01)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        parent = Path(scratch)
        hello = job(parent, HELLO)
        wall([*CORDEE, "check", str(hello)], parent)
        for _ in range(rounds):
            rows.setdefault("bare `python -c pass`", []).append(wall([sys.executable, "-c", "pass"], parent))
            rows.setdefault("`cordee --help`", []).append(wall([*CORDEE, "--help"], parent))
            rows.setdefault("`cordee check`, warm", []).append(wall([*CORDEE, "check", str(hello)], parent))
            ours, bare = first_line(hello, parent / "runs")
            rows.setdefault("`cordee run` to the first line, 2 nodes", []).append(ours)
            rows.setdefault("the bare command to its first line", []).append(bare)
        up = job(parent, STARTS)
        for _ in range(rounds):
            rows.setdefault("kill -9 of a rank to all ranks up again", []).append(recovery(up, parent / "runs"))
            rows.setdefault("the same under torchrun", []).append(torchrun_recovery(up))
    print("| what | median s | least | most |\n|---|---|---|---|")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} |")


if __name__ == "__main__":
    main()
