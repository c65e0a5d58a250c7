"""The way home while a job runs: what it writes is copied to its access point, and what people ask of it is fetched there.

Nothing here may hold up a run: where the access point does not answer, it is tried again, and what is behind follows then. Every
write says where in its file it belongs, so that one that was done twice did no harm.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Optional

from cordee.backends.htcondor.node.ads import CLIENT_THERE
from cordee.backends.htcondor.node.chirp import Chirp
from cordee.backends.htcondor.node.sandbox import KEPT, SENT, last_words_at
from cordee.runs.checkpoint import Checkpoint, CheckpointFinder
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.state import RunState

_EVERY_S, _AGAIN_S = 1.0, 10.0
_TELEMETRY_S = 30.0
_MOST_AT_ONCE = 8 << 20
# A checkpoint is on its way for this part of the time at most: the access point has other users.
_SHARE = 0.2
_CHUNK = 4 << 20
_COMING = ".coming-"


class WayHome:
    """Copies what grows: journal, output, telemetry; and fetches requests. Runs in a thread.

    Args:
        folder: the run's, here.
        state: returns the run's state as its journal has it.
        connect: opens a connection to the access point.
    """

    def __init__(self, folder: RunFolder, state: Callable[[], RunState], connect: Callable[[], Chirp] = Chirp) -> None:
        self._folder, self._state, self._connect = folder, state, connect
        self._chirp: Optional[Chirp] = None
        self._sizes: dict[str, int] = {}
        self._told: dict[str, object] = {}
        self._closing = threading.Event()
        self._next_telemetry = 0.0
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="cordee-home", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, most_s: float) -> None:
        """Copy the rest, in `most_s` at most."""
        self._closing.set()
        self._thread.join(most_s)

    def _run(self) -> None:
        while True:
            last = self._closing.is_set()
            pause_s = _EVERY_S
            try:
                self._pass(everything=last)
                self._trouble = ""
            except OSError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    say(f"cordee: the access point does not take what this job has to say, trying again: {error}")
                self._hang_up()
                pause_s = _AGAIN_S
            if last:
                self._hang_up()
                return
            self._closing.wait(pause_s)

    def _pass(self, everything: bool) -> None:
        if self._chirp is None:
            self._chirp = self._connect()
        chirp = self._chirp
        due = everything or time.monotonic() >= self._next_telemetry
        for path in self._files(due):
            self._copy_growth(chirp, path)
        if due:
            self._next_telemetry = time.monotonic() + _TELEMETRY_S
        if not everything:
            self._fetch_requests(chirp)
        elif self._state().ended:
            self._forget_what_was_kept(chirp)
        self._tell(chirp, due)

    def _files(self, telemetry: bool) -> Iterator[Path]:
        folders = [self._folder.logs, self._folder.journal, *([self._folder.telemetry] if telemetry else [])]
        for folder in folders:
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    theirs = folder == self._folder.journal and entry.name == CLIENT_THERE
                    if entry.is_file(follow_symlinks=False) and not theirs and not entry.name.startswith("."):
                        yield Path(entry.path)
        yield from sorted((self._folder.root / "tasks" / "journal").glob("*.jsonl"))

    def _copy_growth(self, chirp: Chirp, path: Path) -> None:
        name = self._at_home(path)
        size = path.stat().st_size
        known = self._sizes.get(name)
        if known is None:
            known = self._sizes[name] = max(0, chirp.size(name))
        with open(path, "rb") as file:
            file.seek(known)
            while known < size:
                data = file.read(min(_MOST_AT_ONCE, size - known))
                end = last_words_at(data) if path.parent == self._folder.journal else -1
                if end >= 0:  # it has ended once all of it is at home
                    data, size = data[:end], known + end
                if not data:
                    break
                chirp.write(name, data, known)
                known += len(data)
                self._sizes[name] = known

    def _fetch_requests(self, chirp: Chirp) -> None:
        """Bring what people have left in the folder of requests to where the supervisor looks."""
        there = self._at_home(self._folder.requests)
        for name in chirp.names(there):
            if name.endswith(".json") and not name.startswith("."):
                data = chirp.read(f"{there}/{name}")
                write_atomically(self._folder.requests / name, data)
                chirp.remove(f"{there}/{name}")

    def _forget_what_was_kept(self, chirp: Chirp) -> None:
        """Remove at home what was there for a next start."""
        there = self._at_home(self._folder.checkpoints)
        for name in chirp.names(there):
            if name.startswith((KEPT, SENT)):
                chirp.remove(f"{there}/{name}")

    def _tell(self, chirp: Chirp, steps: bool) -> None:
        """Say how far the run is as attributes of the job, which the queue shows."""
        state = self._state()
        says: dict[str, object] = {"CordeeState": state.state, "CordeeCheckpoint": state.checkpoint}
        if steps:  # seldom: each of them is a line of the job's event log
            says["CordeeStep"] = state.step
        for name, value in says.items():
            if value is not None and self._told.get(name) != value:
                chirp.set_attribute(name, value)
                self._told[name] = value

    def _at_home(self, path: Path) -> str:
        return str(path.relative_to(self._folder.root.parent))

    def _hang_up(self) -> None:
        if self._chirp is not None:
            self._chirp.close()
            self._chirp = None


class CheckpointsHome:
    """Copies the newest complete checkpoint, so that a machine that is lost takes little with it. Runs in a thread.

    Args:
        folder: the run's, here.
        finder: of its checkpoints.
        turn: of this start.
        connect: opens a connection to the access point.
    """

    def __init__(
        self, folder: RunFolder, finder: CheckpointFinder, turn: str, connect: Callable[[], Chirp] = Chirp
    ) -> None:
        self._folder, self._finder, self._turn, self._connect = folder, finder, turn, connect
        self._closing = threading.Event()
        self._sent: Optional[Checkpoint] = None
        self._thread = threading.Thread(target=self._run, name="cordee-checkpoints-home", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Begin no further one."""
        self._closing.set()

    def _run(self) -> None:
        self._sent = self._finder.glance()  # what arrived with the job is at home, or kept for the next start
        pause_s = _EVERY_S
        while not self._closing.wait(pause_s):
            began = time.monotonic()
            try:
                newest = self._finder.glance()
                sent = newest is not None and newest != self._sent and self._send(newest)
            except OSError as error:
                if not self._closing.is_set():
                    say(f"cordee: checkpoints do not come to the access point, trying again: {error}")
                pause_s = _AGAIN_S
                continue
            took_s = time.monotonic() - began if sent else 0.0
            pause_s = max(_EVERY_S, took_s * (1.0 / _SHARE - 1.0))

    def _send(self, newest: Checkpoint) -> bool:
        """Copy one under another name, give it its own, and remove the one that was sent before; False: it changed meanwhile."""
        chirp = self._connect()
        try:
            home = self._at_home(self._folder.checkpoints)
            coming, name = f"{home}/{_COMING}{newest.name.replace('/', '-')}", f"{home}/{newest.name}"
            before = _state(newest.path)
            _clear(chirp, coming)
            self._copy(chirp, Path(newest.path), coming)
            if _state(newest.path) != before:
                _clear(chirp, coming)
                return False
            for depth in range(1, newest.name.count("/") + 1):
                chirp.make_folder("/".join([home, *newest.name.split("/")[:depth]]))
            if os.path.isdir(newest.path):
                chirp.remove_all(name)
            chirp.rename(coming, name)
            if os.path.isfile(newest.path):
                _clear(chirp, f"{home}/{SENT}{self._turn}")
                chirp.write(f"{home}/{SENT}{self._turn}", newest.name.encode(), 0)
            former, self._sent = self._sent, newest
            if former is not None and former.name != newest.name:
                _clear(chirp, f"{home}/{former.name}")
            return True
        finally:
            chirp.close()

    def _copy(self, chirp: Chirp, source: Path, target: str) -> None:
        if source.is_dir():
            chirp.make_folder(target)
            for name in sorted(os.listdir(source)):
                self._copy(chirp, source / name, f"{target}/{name}")
            return
        offset = 0
        with open(source, "rb") as file:
            while not self._closing.is_set():
                data = file.read(_CHUNK)
                if not data and offset:
                    return
                chirp.write(target, data, offset)
                offset += len(data)
                if not data:
                    return
        raise InterruptedError("the job leaves")

    def _at_home(self, path: Path) -> str:
        return str(path.relative_to(self._folder.root.parent))


def _clear(chirp: Chirp, path: str) -> None:
    """Remove a file or folder at home, if it is there."""
    with suppress(OSError):
        chirp.remove(path)
        return
    chirp.remove_all(path)


def _state(path: str) -> list[tuple[str, int, int]]:
    """Return name, size and time of each file of a checkpoint."""
    if not os.path.isdir(path):
        state = os.stat(path)
        return [("", state.st_size, state.st_mtime_ns)]
    found = []
    for place, _, names in os.walk(path):
        for name in names:
            state = os.stat(os.path.join(place, name))
            found.append((os.path.join(place, name), state.st_size, state.st_mtime_ns))
    return sorted(found)
