"""Runs on the disposable HTCondor pool, whose machines see nothing of the folders that tests write to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.backends import htcondor as back_end
from cordee.job.submit import Standing, submitter_of
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState
from cordee.testing.htcondor import DisposablePool
from cordee.testing.patience import wait_until
from cordee.testing.programs import COUNTING
from support.runs.real_run import LocalRun

# The pool's machines are this one: a job is lost with its machine after this many seconds, not after a quarter of an hour.
PROFILE = 'scheduler = "htcondor"\n[htcondor]\nattributes = { JobLeaseDuration = 20 }\n'


class CondorRun(LocalRun):
    """One run on the pool that the environment leads to."""

    cluster = back_end.BACKEND.name

    @property
    def job(self) -> str:
        """Its job."""
        return str(self.state.job)

    @property
    def standing(self) -> Standing:
        """What the pool says of it now."""
        return self.place.standing(self.folder, age_s=0.0)

    def start(self) -> None:
        """Submit it."""
        submitter_of(self.folder).submit(self.folder, self.prepared.plan.document())

    def end(self) -> None:
        """Remove its jobs and kill whatever is left of it."""
        submitter_of(self.folder).cancel(self.folder)
        processes.sweep(f"{self.folder.id}/")
        self._until_gone()

    def wait_step(self, step: int) -> RunState:
        """Return the state once it has said that it is beyond a step."""
        return self.wait(lambda state: (state.step or 0) >= step)

    def wait_standing(self, state: str) -> Standing:
        """Return the standing once the pool says so."""
        self.wait(lambda _: self.standing.state == state)
        return self.standing

    def cordee(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command about it."""
        command, *rest = words
        argv = [sys.executable, "-m", "cordee", command, self.folder.id, "--runs", str(self.folder.root.parent), *rest]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def cordee_of(self, child: RunFolder, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command about a run below it."""
        argv = [sys.executable, "-m", "cordee", command, str(child.root)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def wait_shown(self, reached: Callable[[dict[str, Any]], bool], most_s: float) -> dict[str, Any]:
        """Return what `cordee show` says once it says so; runs below others are told of by whoever looks."""
        seen: list[dict[str, Any]] = []

        def look() -> bool:
            seen.append(json.loads(self.cordee("show", "--json").stdout))
            return reached(seen[-1])

        wait_until(look, most_s, said=lambda: str(seen[-1]))
        return seen[-1]

    def _last_words(self) -> dict[str, str]:
        named = [*self.folder.submit.glob("htcondor-*"), self.folder.submit / "htcondor.log"]
        texts = {path.name: path.read_text(errors="replace")[-1500:] for path in named if path.is_file()}
        return {**super()._last_words(), **texts, "standing": str(self.standing)}


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Path]:
    """Write a job folder: `job(run, toml_lines, script)`."""

    def write(run: str = "python train.py 40 0.1", toml: str = "", script: str = COUNTING) -> Path:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(script)
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = {run!r}\nvet.max_load = 1000.0\n{toml}\n')
        return folder

    return write


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The profile of the pool."""
    path = tmp_path / f"{back_end.BACKEND.name}.toml"
    path.write_text(PROFILE)
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    return path


@pytest.fixture
def start(tmp_path: Path, htcondor: DisposablePool, profile: Path) -> Iterator[Callable[..., CondorRun]]:
    """Submit a job folder; whatever is left of the run is ended after the test."""
    started: list[CondorRun] = []

    def begin(folder: Path, **flags: Any) -> CondorRun:
        run = CondorRun(folder, tmp_path / "runs", **flags)
        started.append(run)
        run.start()
        return run

    yield begin
    for run in started:
        run.end()
