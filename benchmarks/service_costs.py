"""What each entry of the catalogue that runs takes: memory once it is ready, seconds until then, disk of its volumes.

    python benchmarks/service_costs.py
    python benchmarks/service_costs.py redis postgresql --times 5

Each entry is deployed `--times` times into a folder of its own, by `cordee service deploy --json`; in the table are medians. Memory is
the sum of PSS over its program and all processes that come from it, ten seconds after it became ready. Seconds are
`ready_after_s` of its state's file: set-up, start and the answers that count as ready, without what Cordée takes to begin a run.
PostgreSQL refuses root, so root has another user deploy it. Prefect lies in an environment of its own (`make install`). The endpoint
gets the example's model, of a few MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from cordee.machine.processes.tree import all_processes
from cordee.systems.services.node.texts import read_state, state_path
from cordee.testing.containers import AS_USER, UID
from support.open_python import OpenPython, open_python

SETTLED_S = 10.0
PREFECT = Path(sys.prefix) / "prefect" / "bin"
EXAMPLE = Path(__file__).parents[1] / "examples" / "char-gpt"
MODEL = """
import sys, torch, cordee
sys.path.insert(0, sys.argv[1])
import train
model = train.CharGPT()
cordee.checkpointer(model, torch.optim.AdamW(model.parameters()), every_steps=1).save(10)
"""


class Cost(NamedTuple):
    """Of one deployment."""

    memory_mb: float
    ready_s: float
    disk_mb: float
    processes: int


def family(pid: int) -> Iterator[int]:
    """Yield a process and all that come from it."""
    children: dict[int, list[int]] = {}
    for one in all_processes().values():
        children.setdefault(one.parent, []).append(one.pid)
    todo = [pid]
    while todo:
        yield (one := todo.pop())
        todo += children.get(one, [])


def pss_mb(pid: int) -> float:
    """Return the share of memory that a process has, MB; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def measured(name: str, options: list[str], python: OpenPython) -> Cost:
    """Deploy an entry, measure it, and remove it."""
    with tempfile.TemporaryDirectory(prefix="cordee-cost-", dir="/tmp", ignore_cleanup_errors=True) as place:
        other = name == "postgresql" and os.getuid() == 0
        env = {**os.environ, "HOME": place, "CORDEE_SERVICES": f"{place}/services"}
        env["PATH"] = os.pathsep.join([str(PREFECT if name == "prefect" else Path(sys.executable).parent), env["PATH"]])
        words = [*AS_USER, python.executable] if other else [sys.executable]
        if other:
            os.chown(place, UID, UID)
            env["PYTHONPATH"] = python.source

        def service(*more: str) -> dict[str, Any]:
            done = subprocess.run(
                [*words, "-m", "cordee.faces.cli", "service", *more, "--json"], env=env, cwd="/", stdout=subprocess.PIPE
            )
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        try:
            now = service("deploy", name, *options)
            told = read_state(state_path(Path(now["run"]), name))
            time.sleep(SETTLED_S)
            pids = list(family(told["pid"]))
            volumes = Path(env["CORDEE_SERVICES"]) / name / "volumes"
            blocks = sum(one.lstat().st_blocks for one in volumes.rglob("*"))
            return Cost(sum(map(pss_mb, pids)), told["ready_after_s"], blocks * 512 / 1e6, len(pids))
        finally:
            service("stop", name, "--remove")


def main() -> None:
    """Print a line of a Markdown table for each entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        entries = {name: [] for name in ("postgresql", "redis", "ray", "prefect", "optuna-dashboard", "mlflow")}
        entries["tensorboard"] = ["--set", f"logdir={place}"]
        entries["jupyterlab"] = ["--set", f"folder={place}", "--set", "allow_root=true"]
        entries["endpoint"] = ["--model", place, "--config", str(EXAMPLE / "serving"), "--set", "device=cpu"]
        parser.add_argument("entries", nargs="*", choices=[*entries, []], help="default: all")
        parser.add_argument("--times", type=int, default=3)
        asked = parser.parse_args()
        chosen, python = asked.entries or list(entries), stack.enter_context(open_python())
        if "endpoint" in chosen:
            made = {**os.environ, "CORDEE_CHECKPOINT_DIR": place}
            subprocess.run([sys.executable, "-c", MODEL, str(EXAMPLE)], env=made, check=True)
        print("| entry | memory MB | ready s | each | disk MB | processes |\n|---|---|---|---|---|---|")
        for name in chosen:
            costs = [measured(name, entries[name], python) for _ in range(asked.times)]
            memory, ready, disk, processes = (statistics.median(one) for one in zip(*costs, strict=True))
            each = ", ".join(f"{one.ready_s:.1f}" for one in costs)
            print(f"| {name} | {memory:.0f} | {ready:.1f} | {each} | {disk:.1f} | {processes:.0f} |", flush=True)


if __name__ == "__main__":
    main()
