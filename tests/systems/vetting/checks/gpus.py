"""Runs checks as a run does: in a process of their own, which finds the fake NVML library as it would find a driver's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.nvml import FakeGpus


def ask(check: str, gpus: FakeGpus | None, parameters: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    """Return the result of one check; `env` in the request is the ranks', `process_env` that of the checks."""
    deadline_s = request.pop("check_deadline_s", None)
    entry = {"check": check, "parameters": parameters or {}, **({"deadline_s": deadline_s} if deadline_s else {})}
    (result,) = ask_all([entry], gpus, **request)
    return result


def ask_all(checks: list[dict[str, Any]], gpus: FakeGpus | None, **request: Any) -> list[dict[str, Any]]:
    """Return the results of the checks of one request, in its order."""
    process_env = {**os.environ, **(gpus.env if gpus else {}), **request.pop("process_env", {})}
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "SLURM_JOB_ID"):
        process_env.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "cordee.systems.vetting.node.checks"],
        input=json.dumps({"deadline_s": 20, "checks": checks, **request}),
        env=process_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = {result["name"]: result for result in map(json.loads, done.stdout.splitlines())}
    return [results[entry["check"]] for entry in checks]


def executable(folder: Path, name: str, text: str) -> Path:
    """Write a program into a folder that can be put on PATH, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder
