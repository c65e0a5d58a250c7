"""What a run's processes and those who wait for it ask of the run's folder, by strace; and what large runs cost a supervisor.

Usage: python benchmarks/quiet.py [--seconds 10]; needs strace.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cordee.control.world import encode_places
from cordee.machine.processes import tree as processes
from support.runs.real_run import LocalRun

TRAIN = "import time\nimport cordee\nfor i in range(900):\n    cordee.log(i, x=1.0); time.sleep(0.1)\n"
CALLS = "trace=%file,getdents64"


def rate(pid: int, root: Path, seconds: float, scratch: Path) -> tuple[float, dict[str, float]]:
    """Return operations a second of a process on names below `root`, all and by system call; a listing is one, fstat of open files none."""
    out = scratch / "strace"
    argv = ["strace", "-f", "-qq", "-e", CALLS, "-y", "-o", str(out), "-p", str(pid)]
    tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    tracer.terminate()
    tracer.wait()
    count: Counter[str] = Counter()
    for line in out.read_text(errors="replace").splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        named = match and str(root) in line and '>, ""' not in line and "O_DIRECTORY" not in line
        if match and named and "/* 0 entries */" not in line:
            count[match.group(1)] += 1
    return sum(count.values()) / seconds, {name: round(value / seconds, 1) for name, value in count.most_common()}


def of_a_run(seconds: float) -> None:
    """Print the rates of a run of one node that trains."""
    scratch = Path(tempfile.mkdtemp())
    job = scratch / "job"
    job.mkdir()
    (job / "train.py").write_text(TRAIN)
    (job / "cordee.toml").write_text('name="rate"\nrun="python train.py"\n[need]\nnodes=1\nranks_per_node=1\n')
    with LocalRun(job, scratch / "runs", vet__max_load=1000.0) as run:
        run.wait_training()
        time.sleep(20)
        for part in ("keeper", "supervisor", "agent local-0"):
            print(part, *rate(run.pid(part), run.folder.root, seconds, scratch))
        env = dict(os.environ, CORDEE_RUNS=str(scratch / "runs"))
        argv = [sys.executable, "-m", "cordee.faces.cli", "logs", "--follow", run.folder.id]
        client = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=env)
        time.sleep(15)
        print("cordee logs --follow", *rate(client.pid, run.folder.root, seconds, scratch))
        client.kill()
        client.wait()


def of_the_order_to_start(nodes: int) -> None:
    """Print what the order to start ranks costs for all nodes, with all names in each node's message and with shared bytes."""
    names = [f"nid{index:06d}" for index in range(nodes)]
    addresses = [f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}" for index in range(nodes)]
    some = min(nodes, 200)
    began = time.perf_counter()
    size = sum(len(json.dumps({"nodes": names, "addresses": addresses, "node": name})) for name in names[:some])
    each = (time.perf_counter() - began) / some
    print(f"{nodes} nodes, names in each message: {size / some * nodes / 2**20:.0f} MiB, {each * nodes:.2f} s")
    began = time.perf_counter()
    places = encode_places(names, addresses)
    size = sum(len(json.dumps({"node": name})) + len(places) for name in names)
    print(f"{nodes} nodes, shared bytes: {size / 2**20:.2f} MiB, {time.perf_counter() - began:.2f} s")


def of_a_look_at_processes(count: int) -> None:
    """Print what one look at all processes of a node costs."""
    others = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    took = []
    for _ in range(10):
        began = time.perf_counter()
        table = processes.all_processes()
        processes.of_tasks({os.getpid(): "none"}, table)
        took.append((time.perf_counter() - began) / len(table))
    for other in others:
        other.kill()
        other.wait()
    print(
        f"a look at {len(table)} processes: {min(took) * 1e6:.1f} us each, {min(took) * 4000 * 1000:.0f} ms for 4,000"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    for nodes in (2_500, 10_000):
        of_the_order_to_start(nodes)
    of_a_look_at_processes(1500)
    of_a_run(seconds)


if __name__ == "__main__":
    main()
