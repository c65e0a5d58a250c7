"""Where the recorded processes of one node meet: each leaves a registration, one of them starts the node's sampler.

```
<memory>/cordee-<uid>/record-<hash>/
  door                      flock: held for moments, by whoever comes and by the sampler when it leaves
  sampler                   flock: held by the sampler for as long as it lives
  bell                      a FIFO: whoever comes rings, so that the sampler looks at once
  <pid>-<ticks>.json        one registration per process; it stays until the sampler leaves
  <pid>-<ticks>.channel     what the process says by `cordee.log`
```

Every lock is the kernel's and goes with its holder, so that nothing has to be cleaned up after a `kill -9`.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Iterator, Optional

from cordee.core.errors import CordeeError, RunFolderError
from cordee.machine.node_folder import memory_places, name_of_user
from cordee.machine.private import open_private_folder, private_folder, private_folders
from cordee.machine.processes.tree import is_same_process
from cordee.telemetry.node.record.detach import above_streams
from cordee.telemetry.node.record.names import digest
from cordee.wire.channel import create_channel

_TRIES = 100


class RankTaken(CordeeError):
    """The recording holds this rank already: its process was started again, by hand or by a script."""

    kind = "record"


@dataclass
class Registration:
    """One process that is to be recorded.

    Attributes:
        start_ticks: since boot; with the pid it names a process for good.
        environ: the variables that tell which GPUs are its own.
        cpus: those that it may use; `bound` says by whom it was bound to them.
        channel: the path of its channel for `cordee.log`, None where it has another or none.
    """

    pid: int
    start_ticks: int
    rank: int
    attempt: int
    argv: list[str]
    started_at: float
    local_rank: Optional[int] = None
    environ: dict[str, str] = field(default_factory=dict)
    cpus: list[int] = field(default_factory=list)
    bound: str = ""
    channel: Optional[str] = None

    @property
    def name(self) -> str:
        """Its name in the meeting."""
        return f"{self.pid}-{self.start_ticks}"


class RecordingRoster:
    """The meeting of one recording on one node.

    Args:
        words: what all that meet have in common and others have not: the recording's folder, the start's key, the node,
            the devices that they may open.
        base: where memory can be had as files.
    """

    def __init__(self, words: list[str], base: Optional[Path] = None) -> None:
        words = [*words, _namespace("pid"), _namespace("ipc")]
        self._base = base or memory_places()[0]
        self._name = f"record-{digest(chr(0).join(words))}"
        self._settle(next(private_folders(self._base, name_of_user()), self._base / name_of_user()))

    def _settle(self, parent: Path) -> None:
        self.parent = parent
        self.folder = parent / self._name

    def register(self, mine: Registration, *, channel: bool) -> Optional[int]:
        """Leave a registration, and return the lock of the sampler where there is none yet: the caller has to start it.

        The descriptor is closed at exec; a fork keeps the lock.

        Args:
            channel: make a channel for `cordee.log`, too; where memory is short there is none.

        Raises:
            RankTaken: another process has been registered as this rank.
            RunFolderError: the folder cannot be written.
        """
        try:
            with self._door(make=True):
                for other in self.registrations():
                    if (other.rank, other.attempt) == (mine.rank, mine.attempt) and other.name != mine.name:
                        raise RankTaken(f"rank {mine.rank} is recorded already", given=f"process {other.pid}")
                if channel:
                    mine.channel = self._channel(mine)
                path = self.folder / f"{mine.name}.json"
                path.with_suffix(".new").write_text(json.dumps(asdict(mine)))
                os.rename(path.with_suffix(".new"), path)
                lock = os.open(self.folder / "sampler", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(lock)
                    self._ring()
                    return None
                lock = above_streams(lock)
                try:
                    os.mkfifo(self.folder / "bell", 0o600)
                except FileExistsError:
                    pass
                return lock
        except OSError as error:
            raise RunFolderError(
                f"cannot meet the other processes of this node: {error.strerror}",
                given=str(self.folder),
                allowed="/dev/shm or $TMPDIR with some space that you may write",
                next="make room there, or set TMPDIR",
            ) from error

    def _channel(self, mine: Registration) -> Optional[str]:
        path = self.folder / f"{mine.name}.channel"
        try:
            create_channel(path)
        except OSError:
            return None
        return str(path)

    def withdraw(self, mine: Registration) -> None:
        """Take a registration back: its process will not run."""
        for suffix in (".json", ".channel"):
            try:
                os.unlink(self.folder / f"{mine.name}{suffix}")
            except OSError:
                continue

    def listen(self) -> int:
        """Return a descriptor that becomes readable when somebody comes; for the sampler."""
        return os.open(self.folder / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def registrations(self) -> list[Registration]:
        """Return all registrations, by rank."""
        found: list[Registration] = []
        try:
            os.close(open_private_folder(self.parent))
        except OSError:
            return found  # nobody has come yet, or a stranger was here first
        for path in self.folder.glob("*-*.json"):
            try:
                found.append(Registration(**json.loads(path.read_bytes())))
            except (OSError, ValueError, TypeError):
                continue
        return sorted(found, key=lambda one: (one.rank, one.attempt))

    def leave(self, known: set[str]) -> bool:
        """End the meeting unless somebody has come whom the sampler does not know yet; return whether it is over.

        Args:
            known: names of the registrations that the sampler has seen end.
        """
        try:
            with self._door(make=False):
                if any(one.name not in known for one in self.registrations()):
                    return False
                _empty(self.folder)
        except OSError:
            return True  # somebody has removed it
        try:
            self.parent.rmdir()
        except OSError:
            return True
        return True

    def sweep(self) -> None:
        """Remove what samplers that were killed have left of other meetings, where nobody runs any more."""
        for folder in self.parent.glob("record-*"):
            if folder == self.folder:
                continue
            other = RecordingRoster([], self._base)
            other.parent, other.folder = self.parent, folder
            try:
                with other._door(make=False):
                    if not other._lively():
                        _empty(folder)
            except OSError:
                continue

    def _lively(self) -> bool:
        lock = os.open(self.folder / "sampler", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return any(is_same_process(one.pid, one.start_ticks) for one in self.registrations())

    @contextmanager
    def _door(self, *, make: bool) -> Iterator[None]:
        """Hold the door of a folder that is still the meeting's when it is held.

        Raises:
            OSError: there is no such folder, or none can be made.
        """
        for _ in range(_TRIES):
            if make:
                self._settle(private_folder(self._base, name_of_user()))
                try:
                    self.folder.mkdir(mode=0o700, exist_ok=True)
                except FileNotFoundError:  # the last to leave has just removed the parent
                    continue
            try:
                door = os.open(self.folder / "door", os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
            except FileNotFoundError:
                if make:
                    continue
                raise
            try:
                fcntl.flock(door, fcntl.LOCK_EX)
                if os.fstat(door).st_nlink:
                    yield
                    return
            finally:
                os.close(door)
        raise OSError(0, "the folder vanishes again and again")

    def _ring(self) -> None:
        try:
            bell = os.open(self.folder / "bell", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # the sampler is not listening yet, and looks when it begins to
        try:
            os.write(bell, b"!")
        except BlockingIOError:
            pass
        finally:
            os.close(bell)


def _empty(folder: Path) -> None:
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "door"):  # the door last: others wait at it
        path.unlink()
    folder.rmdir()


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""
