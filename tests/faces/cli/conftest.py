"""The command as people call it, and jobs for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.job.submit import submitter
from cordee.runs.folder import RunFolder

COMMAND = [sys.executable, "-m", "cordee.faces.cli"]
STEPS = """
import time, cordee
for step in range(%d):
    cordee.log(step=step, loss=1.0 / (step + 1), steps=%d)
    print("step", step, flush=True)
    if cordee.stopping(step):
        break
    time.sleep(%s)
"""


class Cordee:
    """`cordee` in one folder of runs; what it started is ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def __call__(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True, check=False, **more
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the one JSON document that a command prints."""
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def job(self, steps: int = 5, pause: float = 0.0, toml: str = "", script: str | None = None) -> Path:
        """Write a job into the folder."""
        (self.folder / "train.py").write_text(STEPS % (steps, steps, pause) if script is None else script)
        (self.folder / "cordee.toml").write_text(f'name = "t"\nrun = "python train.py"\n{toml}\n')
        return self.folder

    def end(self) -> None:
        """Kill what is left of all runs."""
        for folder in self.runs.glob("*/"):
            for _ in range(2):
                submitter("local").cancel(RunFolder(folder))


@pytest.fixture
def cordee(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """The command, in an empty folder."""
    command = Cordee(tmp_path)
    yield command
    command.end()
