"""A real local run under test: written, started, watched through its journal, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cordee.node import processes
from cordee.node.identity import living_record
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.submit import submitter
from cordee.submit.prepare import Prepared, create_run, prepare
from cordee.supervise.place import keeper_record

_POLL_S = 0.03


class LocalRun:
    """One run on this machine.

    Args:
        job: a folder with a cordee.toml.
        runs: the folder that holds runs.
        flags: as `cordee run --set`.
    """

    def __init__(self, job: Path, runs: Path, **flags: Any) -> None:
        dotted = {key.replace("__", "."): value for key, value in flags.items()}
        self.prepared: Prepared = prepare(str(job), "local", dotted, runs)
        self.prepared.require_valid()
        self.folder: RunFolder = create_run(self.prepared)
        self._place = submitter("local")

    def __enter__(self) -> LocalRun:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self) -> None:
        """Submit it."""
        self._place.submit(self.folder, self.prepared.plan.document())

    def end(self) -> None:
        """Kill whatever is left of it, twice: a keeper killed in between may have started something."""
        for _ in range(2):
            self._place.cancel(self.folder)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the journal's events so far, of one kind or all."""
        return [event for event in read_journal(self.folder.journal) if name in (None, event["event"])]

    @property
    def state(self) -> RunState:
        """The state now."""
        return replay(read_journal(self.folder.journal), self.folder.id)

    def wait(self, condition: Callable[[RunState], Any], seconds: float = 60.0) -> RunState:
        """Return the first state for which `condition` is true.

        Raises:
            TimeoutError: it did not become true; the message has the state and the processes' last words.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            state = self.state
            if condition(state):
                return state
            time.sleep(_POLL_S)
        words = {path.name: path.read_text(errors="replace")[-800:] for path in self.folder.control.glob("*.log")}
        raise TimeoutError(f"not within {seconds} s: {self.state}\n{words}")

    def wait_end(self, seconds: float = 60.0) -> RunState:
        """Return the last state, once no process of the run is left."""
        state = self.wait(lambda state: state.ended, seconds)
        deadline = time.monotonic() + seconds
        while self._place.active(self.folder) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return state

    def wait_training(self, attempt: int = 1, seconds: float = 60.0) -> RunState:
        """Return the state once all ranks of an attempt run."""
        return self.wait(
            lambda state: (
                state.attempt >= attempt and state.ranks and all(rank.status == "running" for rank in state.ranks)
            ),
            seconds,
        )

    def pid(self, part: str) -> int:
        """Return the pid of `keeper`, `supervisor`, `agent local-0` or `rank 0`."""
        kind, _, name = part.partition(" ")
        if kind == "rank":
            return next(int(rank.pid or 0) for rank in self.state.ranks if rank.rank == int(name))
        record = {
            "keeper": lambda: keeper_record(self.folder),
            "supervisor": lambda: living_record(self.folder.control / "supervisor.json"),
            "agent": lambda: living_record(self.folder.control / f"agent-{name}.json"),
        }[kind]()
        if not record:
            raise ProcessLookupError(f"no {part} lives")
        return int(record["pid"])

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a part of the run."""
        os.kill(self.pid(part), number)

    def processes(self) -> list[int]:
        """Return the pids that carry the run's marker."""
        return [process.pid for process in processes.with_marker(f"{self.folder.id}/")]

    def output(self, rank: int | None = None) -> bytes:
        """Return what the ranks printed so far."""
        from cordee.runs.logframes import read_frames

        frames = [frame for path in sorted(self.folder.logs.glob("*.log")) for frame in read_frames(path)]
        return b"".join(frame.data for frame in frames if rank in (None, frame.rank))
