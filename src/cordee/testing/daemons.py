"""What disposable schedulers share: daemons known by pid and start time, folders of their own, and a guard that ends both."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from cordee.core.errors import CordeeError, UsageError
from cordee.machine.processes import tree as processes
from cordee.testing.patience import PatientWait

Shape = TypeVar("Shape", bound=BaseModel)

POLL_S = 0.05
_TAIL_BYTES = 1500
_END_S = 8.0
# Debian puts the daemons where an ordinary user's PATH does not lead.
_SEARCH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_FORBIDDEN = " \t\n#\"'\\,=%[]"
# The shell writes its own line of /proc before it becomes the daemon: whatever happens to the one who starts it, no
# daemon runs without a record of its pid and start time.
_RECORD_AND_BECOME = 'cat "/proc/$$/stat" > "$0" && exec "$@"'

# Reads until whoever started it has closed the other end, if only by dying.
_GUARD = """
import sys
sys.stdin.read()
from importlib import import_module
from pathlib import Path
getattr(import_module(sys.argv[1]), sys.argv[2])(Path(sys.argv[3])).down()
"""


class DisposableError(CordeeError):
    """A disposable scheduler cannot be made, or one of its daemons does not do what it should."""

    kind = "testing"


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the path of a program on PATH or in the system's own folders, None when it is not installed.

    Args:
        path: looked in instead of PATH.
    """
    given = os.environ.get("PATH", os.defpath) if path is None else path
    return shutil.which(name, path=os.pathsep.join([given, *_SEARCH]))


class Claims(Generic[Shape]):
    """The folders of one kind of disposable scheduler: each is claimed by a record of what lies in it.

    Args:
        software: its name, as `Slurm`.
        command: what puts one up and takes it down, as `cordee testing slurm`.
        record: the name of the record's file.
        shape: the model of the record.
        longest: how many bytes the folder's path may have.
    """

    def __init__(self, software: str, command: str, record: str, shape: type[Shape], longest: int) -> None:
        self._software, self._command = software, command
        self._record, self._shape, self._longest = record, shape, longest

    def require_name(self, folder: Path) -> Path:
        """Return a folder as an absolute path.

        Raises:
            UsageError: its files and sockets cannot hold a path of this length or with these characters.
        """
        path = Path(folder).absolute()
        if len(os.fsencode(path)) > self._longest or any(char in str(path) for char in _FORBIDDEN):
            raise UsageError(
                f"{self._software} cannot work in a folder of this name",
                given=str(path),
                allowed=f"at most {self._longest} bytes, without blanks, quotes, brackets and # , = % \\",
                next="give a shorter folder, for example below /tmp",
            )
        return path

    def is_claimed(self, folder: Path) -> bool:
        """Return whether a record lies in a folder."""
        return (folder / self._record).exists()

    def claim(self, folder: Path, shape: Shape) -> None:
        """Make the folder, and write the record by which `down` knows that it may remove it.

        Raises:
            UsageError: something lies there.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                f"a disposable {self._software} wants a folder of its own",
                given=f"{folder} is not empty",
                next="give another folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.write(folder, shape)

    def write(self, folder: Path, shape: Shape) -> None:
        """Write what is made of which parts."""
        fresh = folder / f"{self._record}.new"
        fresh.write_text(shape.model_dump_json(indent=2))
        fresh.replace(folder / self._record)

    def read(self, folder: Path) -> Shape:
        """Return what lies in a folder.

        Raises:
            UsageError: there is none.
        """
        try:
            return self._shape.model_validate_json((folder / self._record).read_bytes())
        except (OSError, ValidationError):
            raise UsageError(
                f"no disposable {self._software} lies here",
                given=str(folder),
                allowed=f"a folder in which `{self._command} up` was called",
                next=f"put one up: {self._command} up",
            ) from None

    def refuse_living(self, folder: Path) -> UsageError:
        """Return the error for a folder in which one is up."""
        return UsageError(
            f"a disposable {self._software} is up here already",
            given=str(folder),
            next=f'use it: eval "$({self._command} env {folder})"; or end it: {self._command} down {folder}',
        )

    def make(self, **values: object) -> Shape:
        """Return a record of these values.

        Raises:
            UsageError: one is out of range.
        """
        try:
            return self._shape(**values)
        except ValidationError as error:
            fault = error.errors()[0]
            name = ".".join(str(part) for part in fault["loc"])
            raise UsageError(f"{name} of a disposable {self._software}: {fault['msg']}", given=fault["input"]) from None


def removed(folder: Path) -> bool:
    """Remove a folder, and return whether it is gone: a process that is ending may have written a last file."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return not folder.exists()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


class Daemons:
    """Daemons, each with a record `pid/NAME` and its output in `log/NAME.out`.

    Args:
        folder: where these lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Start a daemon that stays in the foreground of a session of its own, with this environment alone."""
        record = self.folder / "pid" / name
        record.unlink(missing_ok=True)
        command = ["/bin/sh", "-c", _RECORD_AND_BECOME, str(record), *argv]
        with (self.folder / "log" / f"{name}.out").open("ab") as output:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                cwd=self.folder,
                start_new_session=True,
            )

    def pid(self, name: str) -> int | None:
        """Return the pid of a daemon that lives, None when it does not."""
        child = self._children.get(name)
        if child is not None:
            child.poll()  # a dead child is collected
        try:
            text = (self.folder / "pid" / name).read_bytes()
        except OSError:
            text = b""
        if not text.strip():
            return child.pid if child is not None and child.returncode is None else None
        pid, ticks = int(text.split()[0]), int(text[text.rfind(b")") + 2 :].split()[19])
        return pid if processes.is_same_process(pid, ticks) else None

    def names(self) -> list[str]:
        """Return the daemons that were ever started, alive or not."""
        return sorted({path.name for path in (self.folder / "pid").glob("*")} | set(self._children))

    def living(self) -> list[str]:
        """Return the daemons that live."""
        return [name for name in self.names() if self.pid(name) is not None]

    def end(self, names: Iterable[str], number: int = signal.SIGTERM) -> None:
        """End daemons and wait until they are gone; those that do not go are killed."""
        pending = list(names)
        self._signal(pending, number)
        if not wait_until(lambda: not any(self.pid(name) for name in pending), _END_S):
            self._signal(pending, signal.SIGKILL)
            wait_until(lambda: not any(self.pid(name) for name in pending), _END_S)

    def _signal(self, names: Iterable[str], number: int) -> None:
        processes.kill_all((pid for name in names if (pid := self.pid(name)) is not None), number)

    def tails(self) -> str:
        """Return the last words in the daemons' logs."""
        places = sorted((self.folder / "log").glob("*"))
        logs = {path.name: path.read_bytes() for path in places if "log" in path.name.lower() or path.suffix == ".out"}
        texts = []
        for name, data in logs.items():
            # What a daemon of Slurm prints is in its log too, once it has one.
            repeated = name.endswith(".out") and logs.get(name.removesuffix(".out") + ".log")
            if data and not repeated:
                texts.append(f"--- {name}\n{data[-_TAIL_BYTES:].decode(errors='replace').strip()}")
        return "\n".join(texts)


def start_guard(kind: type, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that takes down what is in a folder, if there is something, as soon as this one closes its end.

    Args:
        kind: the class whose `down` does so.
    """
    command = [sys.executable, "-c", _GUARD, kind.__module__, kind.__qualname__, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)


def cut_power(find: Callable[[], set[int]]) -> bool:
    """Kill processes so that none of them sees another die; return whether all are gone.

    Args:
        find: returns the pids of those that live.
    """
    stopped: set[int] = set()
    while fresh := find() - stopped:
        processes.kill_all(fresh, signal.SIGSTOP)
        stopped |= fresh

    def gone() -> bool:
        left = find()
        # Parents last: the kernel has what is stopped and has lost its parents go on, and it then tells of the death.
        processes.kill_all(children_first(left))
        return not left

    return wait_until(gone, 60.0)


def children_first(pids: set[int]) -> list[int]:
    """Return these processes, each before those that it descends from."""
    table = processes.all_processes()

    def depth(pid: int) -> int:
        count = 0
        while pid in table and count < len(table):
            pid, count = table[pid].parent, count + 1
        return count

    return sorted(pids, key=depth, reverse=True)


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    """Return whether the condition became true in time."""
    patience = PatientWait(seconds)
    while not condition():
        if patience.over():
            return False
        time.sleep(POLL_S)
    return True


def environment_of(pid: int) -> set[bytes]:
    """Return the variables of a process as `NAME=value`; none when it is gone or another user's."""
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def living_processes() -> dict[int, processes.Process]:
    """Return all processes that live, zombies left out, by pid."""
    return {pid: process for pid, process in processes.all_processes().items() if process.state not in ("Z", "X")}
