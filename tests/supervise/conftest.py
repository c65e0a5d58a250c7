"""Jobs to run and the run under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.testing.runs import LocalRun

COUNTING = """
import json, os, pathlib, sys, time
import cordee
steps, pause = int(sys.argv[1]), float(sys.argv[2])
rank = int(os.environ["RANK"])
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
start = 0
if os.environ.get("CORDEE_RESUME_FROM"):
    start = json.loads(pathlib.Path(os.environ["CORDEE_RESUME_FROM"]).read_text())["next"]
print("from", start, flush=True)
for step in range(start, steps):
    stop = cordee.stopping(step)
    cordee.log(step=step, steps=steps, loss=1.0 / (step + 1))
    time.sleep(pause)
    if rank == 0 and (stop or step % 5 == 4):
        partial = folder / ".partial"
        partial.write_text(json.dumps({"next": step + 1}))
        partial.rename(folder / f"step-{step + 1:06d}")
    if stop:
        print("stopped at", step, flush=True)
        break
else:
    print("counted to", steps, flush=True)
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Path]:
    """Write a job folder: `job(script, toml_lines)`."""

    def write(script: str = COUNTING, toml: str = "", run: str = "python train.py 20 0.02") -> Path:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(script)
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = {run!r}\n{toml}\n')
        return folder

    return write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    """Start a run of a job folder; whatever is left of it is killed after the test."""
    started: list[LocalRun] = []

    def begin(folder: Path, **flags: Any) -> LocalRun:
        flags.setdefault("vet__max_load", 1000.0)
        run = LocalRun(folder, tmp_path / "runs", **flags)
        started.append(run)
        run.start()
        return run

    yield begin
    for run in started:
        run.end()
        assert run.processes() == []
