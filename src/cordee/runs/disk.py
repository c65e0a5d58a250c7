"""The calls that a run's records make on its file system, as one small port: tests and simulators put a disk that fails in its place.

A shared file system refuses for a while (full, over quota, read-only, a server that fails over) and says so late: at fsync, or
at close. Whoever writes here takes any call's OSError as an answer, keeps what is not certain, and tries again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Optional, Union

from cordee.machine.foreign_files import regular_below

Place = Union[str, "os.PathLike[str]"]

# What a disk says for a while: full, read-only, a server that fails over or has thrown this client out.
_PASSING = frozenset(
    (
        errno.EIO,
        errno.ESTALE,
        errno.EDQUOT,
        errno.ENOSPC,
        errno.EROFS,
        errno.EPERM,
        errno.EACCES,
        errno.ETIMEDOUT,
        errno.ESHUTDOWN,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ENODEV,
    )
)


def may_pass(error: BaseException) -> bool:
    """Return whether waiting may help against an error: it, or what caused it, is a disk that refuses."""
    cause: Optional[BaseException] = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING


class Disk:
    """The real one. Every call may raise OSError, and may take as long as the file system wants."""

    def open(self, path: Place, flags: int, below: Optional[Place] = None) -> int:
        """Open a file, made with mode 0600, and return its descriptor; with `below`, no link is followed from that folder on."""
        return os.open(path, flags, 0o600) if below is None else regular_below(below)(path, flags)

    def write(self, descriptor: int, data: Union[bytes, memoryview]) -> int:
        """Write and return how many bytes were taken."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """Make durable what was written."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut an open file."""
        os.ftruncate(descriptor, size)

    def stat(self, place: Union[Place, int]) -> os.stat_result:
        """Return what is known of a path or a descriptor."""
        return os.stat(place)

    def close(self, descriptor: int) -> None:
        """Close; an error means that what was written may be lost, and the descriptor is gone all the same."""
        os.close(descriptor)

    def read(self, path: Place) -> bytes:
        """Return what a small file holds."""
        return Path(path).read_bytes()

    def listdir(self, path: Place) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(path)

    def mkdir(self, path: Place) -> None:
        """Make a folder with mode 0700."""
        os.mkdir(path, 0o700)

    def replace(self, source: Place, target: Place) -> None:
        """Give a file another name, in place of what has it."""
        os.replace(source, target)

    def unlink(self, path: Place) -> None:
        """Remove a file."""
        os.unlink(path)

    def touch(self, path: Place) -> None:
        """Set a file's time to now, by the clock of the file system."""
        os.utime(path)


DISK = Disk()
