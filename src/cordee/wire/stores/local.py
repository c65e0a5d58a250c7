"""A folder as a store."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import IO

from cordee.core.errors import DataError
from cordee.machine.foreign_files import regular
from cordee.wire.stores._base import ObjectStore, Stored

_PIECE_BYTES = 8 << 20
PARTIAL = ".partial"


class LocalStore(ObjectStore):
    """The files below a folder; links to files are what they point to, links to folders below it are not entered."""

    def __init__(self, path: str) -> None:
        self.address = os.path.abspath(path)

    def list(self, below: str = "") -> Iterator[Stored]:
        top = os.path.join(self.address, below)
        found = []
        for folder, folders, names in os.walk(top, onerror=_raise_unless_gone):
            folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name))]
            found += [os.path.relpath(os.path.join(folder, name), self.address) for name in names]
        for name in sorted(found, key=os.fsencode):
            stored = self.look(name)
            if stored is not None:
                yield stored

    def look(self, name: str) -> Stored | None:
        try:
            status = os.stat(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failed("looked at", self.path(name), error)
        return Stored(name, status.st_size, _version(status))

    def read(self, name: str, start: int = 0, length: int | None = None, version: str = "") -> bytes:
        try:
            with open(self.path(name), "rb", buffering=0, opener=regular) as file:
                status = os.fstat(file.fileno())
                if version and version != _version(status):
                    raise changed(self.path(name))
                wanted = max(0, status.st_size - start) if length is None else length
                pieces = []
                while wanted and (piece := os.pread(file.fileno(), min(wanted, _PIECE_BYTES), start)):
                    pieces.append(piece)
                    start, wanted = start + len(piece), wanted - len(piece)
        except OSError as error:
            raise _failed("read", self.path(name), error)
        if wanted:
            raise ended_early(self.path(name), wanted)
        return b"".join(pieces)

    def write(self, name: str, content: IO[bytes] | Iterable[bytes]) -> Stored:
        path = self.path(name)
        partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{PARTIAL}")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                with open(partial, "wb") as file:
                    for piece in pieces_of(content, _PIECE_BYTES):
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(partial, path)
            except BaseException:
                if os.path.exists(partial):
                    os.unlink(partial)
                raise
        except OSError as error:
            raise _failed("written", path, error)
        stored = self.look(name)
        assert stored is not None
        return stored

    def delete(self, name: str) -> None:
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failed("removed", self.path(name), error)


def pieces_of(content: IO[bytes] | Iterable[bytes], piece_bytes: int) -> Iterator[bytes]:
    """Give a file's content, or the pieces themselves."""
    if not hasattr(content, "read"):
        yield from content
        return
    while piece := content.read(piece_bytes):
        yield piece


def ended_early(path: str, missing: int) -> DataError:
    """Return the error for an object that is shorter than what was asked of it."""
    return DataError(
        f"it ends {missing} bytes before what should be read",
        given=path,
        next="it was cut off or replaced: copy it again from where it was packed, or pack again",
    )


class SourceChanged(DataError):
    """A source is not what it was when it was listed."""


def changed(path: str) -> SourceChanged:
    """Return the error for an object that was replaced since it was listed."""
    return SourceChanged("it changed after it was listed", given=path, next="run it again when nothing writes there")


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise _failed("listed", str(error.filename), error)


def _failed(done: str, path: str, error: OSError) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "make room, or choose another place by --to; running the same command again continues where it stopped"
    elif error.errno == errno.ENOENT:
        hint = "give a path that is there"
    else:
        hint = "check that it is there and that you may do so: ls -l"
    return DataError(f"cannot be {done}: {error.strerror}", given=path, next=hint)
