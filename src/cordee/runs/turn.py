"""Taking turns at a folder that several hosts share: a lock whose stale holder is followed by one process, never by two.

The lock is a numbered file, `<name>-<number>`; whoever makes the next number holds it. Numbers only grow: a holder that is
done says so in its file and leaves it there for the next one to remove, so that nobody can make a number again.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cordee.runs.disk import DISK, Disk

# A holder on another host, or one that cannot be asked for, is gone when it has not touched its file for so long.
STALE_S = 900.0
_UNWRITTEN_S = 10.0


class Taker:
    """The process that takes turns, and what it can learn of others on its host."""

    def __init__(self) -> None:
        self.host, self.pid = socket.gethostname(), os.getpid()

    def lives(self, pid: int) -> bool:
        """Return whether a process of this host lives, whoever's it is."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


class Turn:
    """One process' claim on a folder.

    Args:
        folder: where the lock's files are; it exists.
        name: of the lock.
        disk: where the folder lies.
        taker: whose claim it is; None: this process'.
    """

    def __init__(self, folder: Path, name: str, disk: Disk = DISK, taker: Taker | None = None) -> None:
        self._folder, self._name, self._disk = folder, name, disk
        self._taker = taker or Taker()
        self._number = 0

    def take(self) -> bool:
        """Take the lock if it is free, or its holder is gone; return whether it is ours.

        Raises:
            OSError: the folder cannot be read or written.
        """
        newest = self._newest()
        if newest and not self._is_free(newest):
            return False
        mine = self._path(newest + 1)
        try:
            descriptor = self._disk.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        except FileExistsError:
            return False
        try:
            self._disk.write(descriptor, json.dumps({"host": self._taker.host, "pid": self._taker.pid}).encode())
        finally:
            self._disk.close(descriptor)
        if self._newest() != newest + 1:  # who held it is done, and who came after has tidied up, since we looked
            self._remove(newest + 1)
            return False
        self._number = newest + 1
        for number in self._numbers():
            if number < self._number:
                self._remove(number)
        return True

    def touch(self) -> None:
        """Say that the holder is still at work."""
        self._disk.touch(self._path(self._number))

    def leave(self) -> None:
        """Let the next one have it; does nothing when it is not ours."""
        if not self._number:
            return
        done = self._folder / f".{self._name}.{self._taker.host}.{self._taker.pid}"
        with suppress(OSError):  # then it is free once this process has ended
            descriptor = self._disk.open(done, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
            try:
                self._disk.write(descriptor, b'{"done": true}')
            finally:
                self._disk.close(descriptor)
            self._disk.replace(done, self._path(self._number))
        self._number = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}"

    def _numbers(self) -> list[int]:
        begin = f"{self._name}-"
        rests = (name[len(begin) :] for name in self._disk.listdir(self._folder) if name.startswith(begin))
        return [int(rest) for rest in rests if rest.isascii() and rest.isdigit()]

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _remove(self, number: int) -> None:
        with suppress(OSError):
            self._disk.unlink(self._path(number))

    def _is_free(self, number: int) -> bool:
        try:
            holder: dict[str, Any] = json.loads(self._disk.read(self._path(number)))
            if holder.get("done"):
                return True
            if holder["host"] == self._taker.host and not self._taker.lives(int(holder["pid"])):
                return True
        except FileNotFoundError:
            return True
        except (ValueError, LookupError, TypeError, AttributeError):
            return self._age_s(number) > _UNWRITTEN_S
        return self._age_s(number) > STALE_S

    def _age_s(self, number: int) -> float:
        """Return for how long a file has not been touched, by the clock of the file system."""
        probe = self._folder / f".{self._name}.now.{self._taker.host}.{self._taker.pid}"
        try:
            self._disk.close(self._disk.open(probe, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))
            self._disk.touch(probe)
            return self._disk.stat(probe).st_mtime - self._disk.stat(self._path(number)).st_mtime
        except FileNotFoundError:
            return 0.0
        finally:
            with suppress(OSError):
                self._disk.unlink(probe)


@contextmanager
def turn(folder: Path, name: str, disk: Disk = DISK) -> Iterator[Turn | None]:
    """Hold a folder's lock inside `with`; yields None while a living process holds it.

    Raises:
        OSError: the folder cannot be read or written.
    """
    mine = Turn(folder, name, disk)
    taken = mine.take()
    try:
        yield mine if taken else None
    finally:
        mine.leave()
