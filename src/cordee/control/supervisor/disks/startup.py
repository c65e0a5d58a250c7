"""A supervisor that begins while a disk stands still: it shows that it lives, waits, and says so, and is not taken for one that hangs."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from contextlib import suppress
from typing import Optional

from cordee.machine.node_folder import NodeFolder, memory_places
from cordee.runs.folder import RunFolder, say

# What a supervisor exits with that the disk does not let begin: whoever starts it waits, and does not count that as a crash.
EXIT_REFUSED = 102
SUPERVISOR = ".supervisor"
_BEAT_S = 0.5
_SAY_S, _FINDING_S = 5.0, 10.0
_MOST_S = 3600.0


class MemoryHeart:
    """A file in this machine's memory, which no other disk holds up; the keeper looks at its time.

    Args:
        folder: the run's.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._file: Optional[NodeFolder] = None

    def beat(self) -> None:
        """Touch it; where memory has no room, what is left is the run's folder."""
        try:
            if self._file is None:
                self._file = NodeFolder(memory_places()[0], self._folder.id, SUPERVISOR)
            self._file.renew()
            self._file.touch()
        except OSError:
            self._file = None
            with suppress(OSError):
                (self._folder.control / "heartbeat").touch()


class PipeHeart:
    """The pipe that the batch script listens at.

    Args:
        number: its descriptor, as the environment has it; where that is no pipe nothing is written.
    """

    def __init__(self, number: str) -> None:
        self._pipe: Optional[int] = None
        with suppress(OSError, ValueError):
            self._pipe = int(number) if stat.S_ISFIFO(os.fstat(int(number)).st_mode) else None

    def beat(self) -> None:
        """Write a line; a full pipe, which nobody reads, must not hold the supervisor up."""
        if self._pipe is not None:
            with suppress(OSError):
                if select.select([], [self._pipe], [], 0)[1]:
                    os.write(self._pipe, b"\n")


class Starting:
    """The heart and the voice of a supervisor whose main thread still reads and claims its run, until its loop takes over.

    Args:
        folder: the run's.
        most_s: after so long it is silent, and whoever watches it may start another.
    """

    def __init__(self, folder: RunFolder, most_s: float = _MOST_S) -> None:
        self._folder, self._most_s = folder, most_s
        pipe = os.environ.get("CORDEE_HEARTBEAT")
        self._heart = MemoryHeart(folder) if pipe is None else PipeHeart(pipe)
        self._others = "" if pipe is None else ", or the scheduler,"
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="cordee-starting", daemon=True)
        self._thread.start()

    def over(self) -> str:
        """Stop; return what is to be found about a start that took long, empty otherwise."""
        if self._over.is_set():
            return ""
        self._over.set()
        seconds = time.monotonic() - self._began
        if seconds < _FINDING_S:
            return ""
        text = f"for {seconds:.0f} s a supervisor could not begin: {self._folder.root}{self._others} did not answer"
        say(f"cordee supervisor: {text}")
        return text

    def _live(self) -> None:
        said = False
        while not self._over.is_set() and time.monotonic() - self._began < self._most_s:
            self._heart.beat()
            if not said and time.monotonic() - self._began > _SAY_S:
                said = True
                say(f"cordee supervisor: cannot begin yet: {self._folder.root}{self._others} does not answer; waiting")
            self._over.wait(_BEAT_S)
