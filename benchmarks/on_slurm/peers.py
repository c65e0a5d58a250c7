"""submitit and torchx on the Slurm that the environment leads to; as a script, one submission by submitit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_TORCHX = """
import sys, time
from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role
import torchx.schedulers.slurm_scheduler
role = Role("train", image="", entrypoint=sys.argv[1], args=[sys.argv[2], "0.5"], num_replicas=2,
            resource=Resource(cpu=1, gpu=0, memMB=100))
with get_runner("benchmark") as runner:
    started = time.perf_counter()
    runner.run(AppDef("b", roles=[role]), "slurm", {})
    print(time.perf_counter() - started)
"""


def _executor(folder: Path) -> Any:
    import submitit

    executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
    executor.update_parameters(nodes=2, tasks_per_node=1, cpus_per_task=1, timeout_min=60)
    return executor


def submitit_seconds(folder: Path) -> float:
    """Return the seconds of submitit's `submit`."""
    executor = _executor(folder)
    started = time.perf_counter()
    executor.submit(int, 1)
    return time.perf_counter() - started


def submitit_end_seconds(folder: Path, stay: float) -> float:
    """Return the seconds from the last task's end to the return of `job.wait()`, with submitit's own polling."""

    def train() -> float:  # a function of no module travels whole
        time.sleep(stay)
        return time.time()

    job = _executor(folder).submit(train)
    job.wait()
    noticed = time.time()
    return noticed - float(max(job.results()))


def torchx_seconds(python: str, script: Path, cwd: Path) -> float:
    """Return the seconds of torchx' `runner.run` in the environment of `python`."""
    argv = [python, "-c", _TORCHX, sys.executable, str(script)]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def torchx_command(python: str, script: Path) -> list[str]:
    """Return the command line of torchx that submits the same two tasks."""
    component = ["utils.sh", "--num_replicas", "2", "--cpu", "1", "--memMB", "100", "--image", ""]
    return [str(Path(python).with_name("torchx")), "run", "-s", "slurm", *component, sys.executable, str(script), "0.5"]


def versions(torchx: str | None) -> dict[str, str]:
    """Return the versions of the peers that are measured."""
    import submitit

    found = {"submitit": str(submitit.__version__)}
    if torchx:
        code = "import importlib.metadata, json; print(json.dumps(importlib.metadata.version('torchx')))"
        found["torchx"] = json.loads(subprocess.run([torchx, "-c", code], capture_output=True, check=True).stdout)
    return found


if __name__ == "__main__":
    submitit_seconds(Path(sys.argv[1]))
