"""Saves of one rank that go on beside the training: its snapshot in memory, and the process that writes it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import threading
import time
import warnings
from typing import Any, Callable, NamedTuple, Optional

from cordee.machine.processes.module_command import DEAF_AT_FIRST, module_argv
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.snapshot import ABANDON, GO_ON, HURRY, SnapshotMemory, storage_writer
from cordee.systems.checkpoints.node.sums import files_of
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace
from cordee.systems.checkpoints.node.write_rate import Pace, StepTimes
from cordee.systems.checkpoints.node.writer import WriteRequest

_WRITER = "cordee.systems.checkpoints.node.writer"
# What would make a writer take itself for the rank.
_OF_THE_RANK = ("CORDEE_CHANNEL", "CORDEE_ADAPTERS", "CORDEE_PULSE")
_END_S = 10.0


class SaveInFlight(NamedTuple):
    """A save under way: its step, when it began (monotonic), how long the training waited for it."""

    step: int
    began: float
    stall_s: float


class BackgroundSaves:
    """One rank's saves beside the training, one at a time.

    Args:
        pace: of their writing.
        tell: told (step, seconds, bytes, seconds that the training waited) when a save's part of this rank is on the disk.

    Attributes:
        flight: the save under way, None without one.
        steps: what steps take, for the pace.
    """

    def __init__(self, pace: Pace, tell: Callable[[int, float, int, float], None]) -> None:
        self._pace, self._tell = pace, tell
        self._memory: Optional[SnapshotMemory] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._news = threading.Condition()
        self._written: Optional[str] = None
        self._complete: Optional[tuple[str, str]] = None
        self._storage: Any = None
        self._completes, self._bytes = False, 0
        self._owner = os.getpid()
        self.flight: Optional[SaveInFlight] = None
        self.steps = StepTimes()
        atexit.register(self.close)

    def storage(self, partial: str) -> Any:
        """Return what DCP writes the next snapshot with."""
        self._memory = self._memory or SnapshotMemory()
        self._memory.begin()
        self._storage = storage_writer(self._memory, partial)
        return self._storage

    @property
    def lack(self) -> str:
        """Why the snapshot did not fit into memory, so that its files were written at once; empty where it did."""
        return self._storage.lack or "" if self._storage is not None else ""

    def keep(self, name: str, save: Callable[[Any], None]) -> None:
        """Add a file that `save` writes into what it is given."""
        assert self._memory is not None
        with self._memory.file(name) as file:
            save(file)

    def hand_over(
        self,
        flight: SaveInFlight,
        partial: str,
        interval_s: Optional[float],
        rank: int,
        completion: Completion,
        place: CheckpointPlace,
    ) -> None:
        """Have the snapshot written; returns at once.

        Raises:
            OSError: the process that writes cannot be started, or is gone.
        """
        assert self._memory is not None
        own = files_of(partial, rank) if self.lack else []
        ends = (list(completion), place.handed_over()) if rank == 0 else ()
        request = WriteRequest(
            rank,
            partial,
            self._memory.size,
            self._memory.files,
            own,
            interval_s,
            self._pace,
            *ends,
        )
        self._written, self._complete = None, None
        self._completes, self.flight = rank == 0, flight
        self.steps.broke_off()
        try:
            stdin = self._started().stdin
            assert stdin is not None
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError:
            self.flight = None
            raise

    def saw(self, step: int) -> None:
        """Take note that a step has ended, so that writing slows down where steps do."""
        self.steps.saw(step, beside=self.flight is not None and self._written is None)
        if self.flight is not None and self._memory is not None and self._written is None:
            self._memory.say(GO_ON, self.steps.limit_s, self.steps.recent_s)

    def finish_part(self) -> str:
        """Have this rank's part written without a pause, wait for it, and return what went wrong, else nothing."""
        self._say(HURRY)
        with self._news:
            while self._written is None:
                self._news.wait()
        return self._written

    def finish(self) -> tuple[str, str]:
        """Wait until rank 0's writer has completed the checkpoint; returns (its path, what went wrong)."""
        with self._news:
            while self._complete is None:
                self._news.wait()
        return self._complete

    def give_up(self) -> None:
        """Do not complete the save under way."""
        self._say(ABANDON)

    def landed(self) -> None:
        """Nothing is under way any more."""
        self.flight = None

    def _say(self, word: int) -> None:
        if self._memory is not None:
            self._memory.say(word)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        assert self._memory is not None
        root = os.path.abspath(__file__).rpartition(os.path.join(os.sep, "cordee", "systems", ""))[0]
        env = {name: value for name, value in os.environ.items() if name not in _OF_THE_RANK}
        env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [*DEAF_AT_FIRST, *module_argv(_WRITER, str(self._memory.descriptor))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._memory.descriptor,),
            env=env,
        )
        self._process = process
        threading.Thread(target=self._listen, args=(process,), name="cordee-checkpoint", daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hear what the writer says until it ends."""
        assert process.stdout is not None
        for line in process.stdout:
            self._heard(json.loads(line))
        if process is self._process:
            code = process.wait()
            self._heard({"failed": f"the process that writes it ended by itself (code {code})"})

    def _heard(self, said: dict[str, Any]) -> None:
        flight = self.flight
        self._bytes = said.get("written", self._bytes)
        if flight is not None and ("complete" if self._completes else "written") in said:
            self._tell(flight.step, time.monotonic() - flight.began, self._bytes, flight.stall_s)
        with self._news:
            failed = str(said.get("failed", ""))
            if self._written is None:
                self._written = failed
            if failed or "complete" in said:
                self._complete = self._complete or (str(said.get("complete", "")), failed)
            self._news.notify_all()

    def close(self) -> None:
        """Let what is under way be complete, and the writer end; done when this process ends, too."""
        if os.getpid() != self._owner or self._process is None or self._process.poll() is not None:
            return
        if self.flight is not None:
            problem = self.finish_part()
            if not problem and self._completes:
                problem = self.finish()[1]
            if problem:
                warnings.warn(f"step {self.flight.step} was not saved: {problem}", RuntimeWarning, stacklevel=2)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")  # processes forked from this one may hold the pipe open
            self._process.stdin.close()
            self._process.wait(_END_S)
