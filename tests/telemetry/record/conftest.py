"""Calls of `cordee record` as people make them, through the node side's own face."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordee
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import Recorder, is_recording, read_recorders
from cordee.telemetry.store.model import Grid
from cordee.testing.patience import PatientWait

WAIT_S = 120.0


class Recording:
    """A recording that is being made, or was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = RunFolder(root)

    def recorders(self) -> list[Recorder]:
        return read_recorders(self.folder)[0]

    def until(self, true: Callable[[list[Recorder]], Any]) -> list[Recorder]:
        """Wait until something is true of the samplers' documents."""
        patience = PatientWait(WAIT_S)
        while not true(found := self.recorders()):
            assert not patience.over(), found
            time.sleep(0.01)
        return found

    def sampled(self, group: str, count: int = 3) -> None:
        """Wait until there are so many samples of a group."""
        self._grid(group, None, lambda grid: len(grid.times) >= count)

    def measured(self, group: str, metric: str) -> Grid:
        """Wait until a value of a metric is above zero, and return all there are."""
        return self._grid(group, [metric], lambda grid: np.nan_to_num(grid.values).max(initial=0) > 0)

    def _grid(self, group: str, metrics: list[str] | None, enough: Callable[[Grid], Any]) -> Grid:
        deadline = time.monotonic() + WAIT_S
        while True:
            run = cordee.open_run(self.root) if is_recording(self.folder) else None
            if run is not None and group in run.groups() and enough(grid := run.grid(group, metrics)):
                return grid
            assert time.monotonic() < deadline, self.recorders()
            time.sleep(0.02)

    def closed(self, count: int = 1) -> list[Recorder]:
        """Return the documents once this many samplers have closed the recording."""
        return self.until(lambda found: len(found) >= count and all(one.ended_at for one in found))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "recording")


@pytest.fixture
def record(recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Start `record(*options, "--", *command)`; a process is returned, which is the command's soon."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    started = []

    def start(*words: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        where = [] if "-o" in words else ["-o", str(recording.root)]
        command = [sys.executable, "-m", "cordee.telemetry.node.record", *where, *words]
        for stream in ("stdin", "stdout", "stderr"):
            more.setdefault(stream, subprocess.PIPE)
        process = subprocess.Popen(command, env={**os.environ, **(env or {})}, text=True, cwd=tmp_path, **more)
        started.append(process)
        return process

    start.folder = tmp_path  # type: ignore[attr-defined]
    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
