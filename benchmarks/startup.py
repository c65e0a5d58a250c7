"""How long a person waits: help, check, the first line of a run, and the way back after a kill.

    python benchmarks/startup.py --rounds 5 [--before TREE]

TREE is a checkout of an earlier version, whose rows stand beside. Everything is measured in turn with what it is compared with, and medians are printed. Machines are noisy: trust the ratios.
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
CORDEE = [sys.executable, "-m", "cordee.cli"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def of_tree(tree: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of a checkout of Cordée, and its environment."""
    return (
        [sys.executable, "-c", "import runpy; runpy.run_module('cordee.cli', run_name='__main__', alter_sys=True)"],
        {**os.environ, "PYTHONPATH": str(Path(tree) / "src")},
    )


def cost(command: list[str], cwd: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that a whole process takes, and its CPU seconds."""
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, cpu


def job(parent: Path, script: str, toml: str = "") -> Path:
    """Write a job of two nodes."""
    folder = parent / "job"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "cordee.toml").write_text(f'name = "b"\nrun = "python train.py"\n[need]\nnodes = 2\n{toml}')
    return folder


def first_line(command: list[str], cwd: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return seconds until a person sees the script's first line, and until the command has ended."""
    started, first = time.perf_counter(), 0.0
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "first" in line and not first:
                first = time.perf_counter() - started
    return first, time.perf_counter() - started


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
    command = [*TORCHRUN, "--max-restarts", "2"]
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
    parser.add_argument("--before", metavar="TREE", help="a checkout of an earlier version")
    given = parser.parse_args()
    rounds = given.rounds
    rows: dict[str, list[float]] = {}
    here = dict(os.environ)
    versions = {"": (CORDEE, here), **({" before": of_tree(given.before)} if given.before else {})}
    with tempfile.TemporaryDirectory() as scratch:
        parent = Path(scratch)
        hello = job(parent, HELLO)
        starts = {f"`cordee run`{of}, 2 nodes": ([*command, "run"], env) for of, (command, env) in versions.items()}
        starts |= {"torchrun, 2 processes": ([*TORCHRUN, "train.py"], here)}
        starts |= {"the bare script": ([sys.executable, "train.py"], here)}
        for command, env in versions.values():
            cost([*command, "check"], hello, env)
        for _ in range(rounds):
            rows.setdefault("bare `python -c pass`", []).append(cost([sys.executable, "-c", "pass"], parent, here)[0])
            for of, (command, env) in versions.items():
                rows.setdefault(f"`cordee --help`{of}", []).append(cost([*command, "--help"], parent, env)[0])
                seconds, cpu = cost([*command, "check"], hello, env)
                rows.setdefault(f"`cordee check`{of}, warm", []).append(seconds)
                rows.setdefault(f"`cordee check`{of}, CPU", []).append(cpu)
            for name, (command, env) in starts.items():
                first, end = first_line(command, hello, env)
                rows.setdefault(f"{name}: first line seen", []).append(first)
                rows.setdefault(f"{name}: ended", []).append(end)
        up = job(parent, STARTS)
        for _ in range(rounds):
            rows.setdefault("kill -9 of a rank to all ranks up again", []).append(recovery(up, parent / "runs"))
            rows.setdefault("the same under torchrun", []).append(torchrun_recovery(up))
    print("| what | median s | least | most |\n|---|---|---|---|")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} |")


if __name__ == "__main__":
    main()
