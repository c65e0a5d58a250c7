"""Jobs to run and the run under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.testing.programs import COUNTING
from support.runs.real_run import LocalRun


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Path]:
    """Write a job folder: `job(script, toml_lines)`."""

    def write(script: str = COUNTING, toml: str = "", run: str | list[str] = "python train.py 20 0.02") -> Path:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(script)
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = {run!r}\n{toml}\n')
        return folder

    return write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    """Start a run of a job folder, `reported` at its end or not; whatever is left of it is killed after the test."""
    started: list[LocalRun] = []

    def begin(folder: Path, *, reported: bool = False, **flags: Any) -> LocalRun:
        flags.setdefault("vet__max_load", 1000.0)
        run = LocalRun(folder, tmp_path / "runs", reported=reported, **flags)
        started.append(run)
        run.start()
        return run

    yield begin
    for run in started:
        run.end()
        assert run.processes() == []
