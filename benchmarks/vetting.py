"""How long a vetting takes without a run: 1, 8 and 32 tasks, trivial and host protocols, with dead tasks, and vetnode beside it.

    python -m venv /tmp/vetnode && /tmp/vetnode/bin/pip install vetnode==0.1.5 tabulate
    python benchmarks/vetting.py --rounds 5 --vetnode /tmp/vetnode/bin/vetnode

Each round measures everything in turn, so that what else the machine does hits all alike; medians are printed. Ours are tasks of
one node, as vetnode's are, and then as many nodes as tasks, each with its own checks on the cores that all share. vetnode has no
checks of hosts, so it has the trivial protocol alone.
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
from collections.abc import Callable
from pathlib import Path

from support.hosts.vetting_tasks import VettingTasks, wait_for

TRIVIAL = """name: trivial
scheduler: {scheduler}
evals:
- name: path
  type: vetnode.evaluations.env_var_eval.EnvVarEval
  expected: {{PATH: null}}
"""
RANKS = (1, 8, 32)
DEAD_OF, DEAD_DEADLINE_S = 20, 10.0
HANGS_S = 60.0


def cordee(folder: Path, protocol: str, tasks: int, *, nodes: int) -> float:
    """Return the seconds until all tasks have ended, spread over so many nodes."""
    command = [sys.executable, "-m", "cordee.faces.cli", "vet", protocol, "--dir", str(folder / "results")]
    each = tasks // nodes
    given = {
        "CORDEE_VET_ID": f"b{time.monotonic_ns()}",
        "CORDEE_VET_NODES": f"s[1-{nodes}]",
        "CORDEE_VET_TASKS_PER_NODE": str(each),
    }
    places = [
        {"CORDEE_VET_NODE": f"s{1 + task // each}", "CORDEE_VET_LOCAL_RANK": str(task % each)} for task in range(tasks)
    ]
    return together([(command, {**given, **place} if tasks > 1 else {}) for place in places])


def vetnode(program: str, folder: Path, tasks: int) -> float:
    """Return the seconds until all of vetnode's tasks have ended; it takes them for tasks of one Slurm node."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "scontrol").write_text("#!/bin/sh\necho localhost\n")
    (bin_ / "scontrol").chmod(0o755)
    protocol = folder / f"vetnode-{tasks}.yaml"
    protocol.write_text(TRIVIAL.format(scheduler="slurm" if tasks > 1 else "standalone"))
    same = {"PATH": f"{bin_}:{os.environ['PATH']}", "SLURM_NTASKS": str(tasks), "SLURM_JOB_NUM_NODES": "1"}
    return together(
        [
            ([program, "diagnose", str(protocol)], {**same, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)})
            for rank in range(tasks)
        ]
    )


def together(commands: list[tuple[list[str], dict[str, str]]]) -> float:
    """Start all commands at once and return the seconds until the last has ended well."""
    started = time.perf_counter()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(command, env={**os.environ, **env}, **quiet) for command, env in commands]  # type: ignore[call-overload]
    try:
        codes = {process.wait(max(0.1, HANGS_S - (time.perf_counter() - started))) for process in running}
    except subprocess.TimeoutExpired:
        return float("inf")
    finally:
        for process in running:
            process.kill()
    if codes != {0}:
        raise SystemExit(f"{commands[0][0]} ended with {codes}")
    return time.perf_counter() - started


def with_dead(number: int) -> float:
    """Return the seconds from the start until the verdict when a tenth of the tasks get a signal in the midst of their checks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        VettingTasks(Path(folder), DEAD_OF, gate=True, deadline_s=DEAD_DEADLINE_S) as tasks,
    ):
        started = time.time()
        tasks.wait_at_the_gate()
        for node in range(2, DEAD_OF + 1, 10):
            tasks.send(node, number)
        tasks.let_go()
        verdict = Path(folder) / "vet.env"
        wait_for(verdict.exists, 60.0)
        took = verdict.stat().st_mtime - started
        if tasks.document["exclude"] != ["s2", "s12"]:
            raise SystemExit(f"the wrong nodes were named: {tasks.document['exclude']}")
        return took


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vetnode", help="vetnode's program, of an environment of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trivial = folder / "trivial.yaml"
        trivial.write_text(TRIVIAL.format(scheduler="standalone"))
        cases: dict[str, Callable[[], float]] = {}
        for tasks in RANKS:
            if options.vetnode:
                cases[f"vetnode, trivial, {tasks} tasks"] = lambda tasks=tasks: vetnode(options.vetnode, folder, tasks)
            for name in ("trivial", "host"):
                given = str(trivial) if name == "trivial" else name
                for nodes in sorted({1, tasks}):
                    where = f"{tasks} tasks" if tasks == 1 else f"{tasks} tasks of {nodes} node{'s' * (nodes > 1)}"
                    cases[f"cordee vet, {name}, {where}"] = (
                        lambda given=given, tasks=tasks, nodes=nodes: cordee(folder, given, tasks, nodes=nodes)
                    )  # fmt: skip
        cases[f"2 of {DEAD_OF} killed, deadline {DEAD_DEADLINE_S:g} s"] = lambda: with_dead(signal.SIGKILL)
        cases[f"2 of {DEAD_OF} stopped, deadline {DEAD_DEADLINE_S:g} s"] = lambda: with_dead(signal.SIGSTOP)
        found: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(options.rounds):
            for case, measure in cases.items():
                found[case].append(measure())
    print("| what | median | least | most |\n|---|---|---|---|")
    for case, seconds in found.items():
        print(f"| {case} | {statistics.median(seconds):.2f} s | {min(seconds):.2f} s | {max(seconds):.2f} s |")


if __name__ == "__main__":
    main()
