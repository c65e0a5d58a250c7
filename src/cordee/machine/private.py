"""Folders that only this user may enter, in places where everybody may write: /dev/shm, /tmp.

Whoever is first there has the name. So a name that somebody else has taken is passed over for one that nobody can know
before it is there, and what lies in a private folder was put there by this user alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Iterator, Optional, Union

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TRIES = 100


def private_folder(base: Path, name: str) -> Path:
    """Return a folder of this user with mode 0700 in `base`, made where it is not there; the same one at each call.

    It is `base/name`; where that is somebody else's, a link, or may be written by others, it is `base/name-<random>`.

    Raises:
        OSError: nothing can be made in `base`, or others may rename what lies there.
    """
    if _others_may_rename(base):
        raise PermissionError(1, "others may rename what lies there: it has no sticky bit", str(base))
    wanted = name
    for _ in range(_TRIES):
        found = next(private_folders(base, name), None)
        if found is not None:
            return found
        try:
            os.mkdir(base / wanted, 0o700)
        except FileExistsError:
            wanted = f"{name}-{os.urandom(8).hex()}"
    raise PermissionError(1, f"every name for a private folder {name} is taken", str(base))


def private_folders(base: Path, name: str) -> Iterator[Path]:
    """Yield what `private_folder` has made for a name, the first choice first; what is not private is passed over."""
    try:
        others = sorted(entry for entry in os.listdir(base) if entry.startswith(f"{name}-"))
    except OSError:
        return
    for entry in (name, *others):
        try:
            os.close(open_private_folder(base / entry))
        except OSError:
            continue
        yield base / entry


def may_hold_private(base: Path) -> bool:
    """Return whether this user may make folders in `base`, and others cannot rename them."""
    try:
        return os.access(base, os.W_OK | os.X_OK) and not _others_may_rename(base)
    except OSError:
        return False


def open_private_folder(path: Union[str, Path], within: Optional[int] = None) -> int:
    """Return a descriptor of a folder of this user, which from now on only this user may enter.

    Args:
        path: of the folder; a link is not followed.
        within: descriptor of the folder that `path` begins in.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it is not a folder, it is somebody else's, or others may have written into it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise PermissionError(1, f"it belongs to user {status.st_uid}", str(path))
        if status.st_mode & _OTHERS_WRITE:
            raise PermissionError(1, "others may write into it", str(path))
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_own_file(name: str, within: int, most_bytes: int) -> bytes:
    """Return what a regular file of this user holds; never waits, follows no link.

    Args:
        name: in the folder with the descriptor `within`.
        most_bytes: a longer file is refused.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it is not a regular file, it is somebody else's, or it is too long.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(1, "it is not a regular file of this user", name)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(0, f"it is longer than {most_bytes} bytes", name)
    return data


def _others_may_rename(base: Path) -> bool:
    mode = os.stat(base).st_mode
    return bool(mode & _OTHERS_WRITE) and not mode & stat.S_ISVTX
