"""Runs on the disposable Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cordee.testing.programs import COUNTING
from support.runs.real_run import SlurmRun

if TYPE_CHECKING:
    from cordee.testing.slurm import DisposableSlurm


class Training:
    """A training of 60 steps at least, 20 in a second, that does not end before it may.

    Attributes:
        run: the command.
    """

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self.run = f"python train.py 60 0.05 {gate}"

    def may_end(self) -> None:
        """Let it end as soon as it has counted to 60."""
        self._gate.touch()


@pytest.fixture
def training(tmp_path: Path) -> Training:
    """A training that is still there when something is to befall it, however slow the machine is."""
    return Training(tmp_path / "gate")


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Path]:
    """Write a job folder: `job(run, toml_lines, script)`."""

    def write(run: str = "python train.py 40 0.1", toml: str = "[need]\nnodes = 2", script: str = COUNTING) -> Path:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(script)
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = {run!r}\n{toml}\n')
        return folder

    return write


@pytest.fixture
def start(tmp_path: Path, slurm: DisposableSlurm) -> Iterator[Callable[..., SlurmRun]]:
    """Submit a job folder; `reported` at its end or not; whatever is left of the run is ended after the test."""
    started: list[SlurmRun] = []

    def begin(folder: Path, *, reported: bool = False, **flags: Any) -> SlurmRun:
        flags.setdefault("vet__max_load", 1000.0)
        flags.setdefault("timeouts__lost", 5.0)
        flags.setdefault("timeouts__orphan", 10.0)
        run = SlurmRun(folder, tmp_path / "runs", reported=reported, **flags)
        started.append(run)
        run.start()
        return run

    yield begin
    for run in started:
        run.end()
