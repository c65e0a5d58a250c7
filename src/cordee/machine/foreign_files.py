"""Opening what others may have written: regular files only, of a bounded size, never waiting, through no link.

Whoever can write a folder can put there a FIFO, which holds its reader for ever, a device, which never ends, or a link to
what only the reader may read or write. Every file of a run folder, and every file of a data set or an image, is opened here.
All that is refused is an `OSError`, whose `strerror` says what the file is, so that it is told where unreadable files are.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, Callable, Optional, Union

Place = Union[str, "os.PathLike[str]"]

LIMIT_BYTES = 256 << 20

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def regular(path: Place, flags: int = os.O_RDONLY) -> int:
    """Open a regular file without waiting and return its descriptor; links are followed, as in a user's own data.

    It is an `opener` for `open`.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    return _open(path, flags, None)


def regular_below(folder: Place) -> Callable[[Any, int], int]:
    """Return an `opener` for the files below a folder, which takes no link from there on, to folders neither.

    What it opens raises:
        OSError: as `regular`; or the file, or a folder on the way to it, is a link.
        ValueError: the path does not lie below the folder.
    """

    def opener(path: Place, flags: int) -> int:
        inside = open_folder(Path(path).parent, folder)
        try:
            return _open(path, flags | os.O_NOFOLLOW, inside)
        finally:
            os.close(inside)

    return opener


def regular_in(folder: int, name: str) -> int:
    """Open a regular file, no link, in a folder that is open, and return its descriptor.

    Raises:
        OSError: it cannot be opened, is no regular file, or a link.
    """
    return _open(name, os.O_RDONLY | os.O_NOFOLLOW, folder)


def open_folder(path: Place, below: Place, *, listed: bool = False) -> int:
    """Return a descriptor of a folder, for calls that take a `dir_fd`, or to be `listed`; from `below` on no link is followed.

    Raises:
        OSError: it is not there, or it or a folder on the way is none, as a link.
        ValueError: it does not lie below `below`.
    """
    names = Path(path).relative_to(below).parts
    if ".." in names:
        raise ValueError(f"{path} leads out of {below}")
    last = _LISTED if listed else _FOLDER
    if not names:
        return os.open(below, last)
    here: Optional[int] = None
    for number, name in enumerate(names, 1):
        step = os.path.join(below, name) if here is None else name
        try:
            there = os.open(step, (last if number == len(names) else _FOLDER) | os.O_NOFOLLOW, dir_fd=here)
        except OSError as error:
            raise _explained(error, path, step, here, "a folder", follows=False) from None
        finally:
            if here is not None:
                os.close(here)
        here = there
    assert here is not None
    return here


def read_regular(path: Place, below: Optional[Place] = None, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Return the content of a regular file; with `below`, no link is followed from that folder on.

    Raises:
        OSError: as `regular` and `regular_below`; or it is larger than `limit_bytes`.
    """
    descriptor = regular(path) if below is None else regular_below(below)(path, os.O_RDONLY)
    with open(descriptor, "rb", buffering=0) as file:
        content, more = b"", file.read(min(os.fstat(descriptor).st_size, limit_bytes) + 1)
        while more and len(content) <= limit_bytes:
            content += more
            more = file.read(1 << 20)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes >> 20} MiB", os.fspath(path))
    return content


def digest_regular(path: Place, below: Optional[Place] = None) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal.

    Raises:
        OSError: as `read_regular`.
    """
    return hashlib.sha256(read_regular(path, below)).hexdigest()


def read_json(path: Place, below: Optional[Place] = None, limit_bytes: int = LIMIT_BYTES) -> Any:
    """Return the JSON document in a regular file.

    Raises:
        OSError: as `read_regular`.
        ValueError: it is no JSON, or is nested too deeply.
    """
    return parse_json(read_regular(path, below, limit_bytes))


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document.

    Raises:
        ValueError: it is none, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _open(path: Place, flags: int, inside: Optional[int]) -> int:
    name = path if inside is None else os.path.basename(os.fspath(path))
    try:
        descriptor = os.open(name, flags | _SAFELY, 0o600, dir_fd=inside)
    except OSError as error:
        raise _explained(error, path, name, inside, "a regular file", follows=inside is None) from None
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, f"it is {_called(kind)}, not a regular file", os.fspath(path))
        os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _explained(
    error: OSError, path: Place, name: Place, inside: Optional[int], wanted: str, *, follows: bool
) -> OSError:
    """Return the error that says what a file is that cannot be opened as what it should be."""
    if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
        try:
            kind = os.stat(name, dir_fd=inside, follow_symlinks=follows).st_mode
        except OSError:
            return error
        said = f"{'it' if wanted == 'a regular file' else os.path.basename(os.fspath(name))} is {_called(kind)}, not {wanted}"
        number = errno.ELOOP if stat.S_ISLNK(kind) else errno.EINVAL if stat.S_ISSOCK(kind) else error.errno
        return OSError(number, said, os.fspath(path))
    return OSError(error.errno, error.strerror, os.fspath(path))


def _called(kind: int) -> str:
    return next((words for test, words in _KINDS if test(kind)), "a file")
