"""Files and attributes of a job at its access point, from within the job: the Chirp protocol, which the starter speaks on loopback.

Source: "Chirp Protocol", version 2 (HTCondor manual, condor_chirp; src/condor_starter.V6.1/io_proxy_handler.cpp).
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Optional

_TIMEOUT_S = 60.0
_MOST_LINE = 8192
_CHUNK = 1 << 20
# What the starter answers in place of a count, and what the same is called here.
_ERRORS = {
    -1: errno.EACCES,
    -2: errno.EACCES,
    -3: errno.ENOENT,
    -4: errno.EEXIST,
    -5: errno.EFBIG,
    -6: errno.ENOSPC,
    -7: errno.ENOMEM,
    -8: errno.EINVAL,
    -9: errno.EMFILE,
    -10: errno.EBUSY,
    -11: errno.EAGAIN,
    -12: errno.EBADF,
    -13: errno.EISDIR,
    -14: errno.ENOTDIR,
    -15: errno.ENOTEMPTY,
    -16: errno.EXDEV,
    -17: errno.EHOSTDOWN,
}


class Chirp:
    """One connection; paths are relative to the folder that the job was submitted from. Every call raises OSError.

    Args:
        config: the file with host, port and cookie.
    """

    def __init__(self, config: Optional[str] = None) -> None:
        where = config or os.environ.get("_CONDOR_CHIRP_CONFIG", ".chirp.config")
        try:
            host, port, cookie = Path(where).read_text().split()
        except ValueError:
            raise OSError(errno.EINVAL, "not host, port and cookie", where) from None
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._answers = self._socket.makefile("rb")
        try:
            self._ask("cookie", cookie)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._answers.close()
            self._socket.close()

    def size(self, path: str) -> int:
        """Return the size of a file in bytes, -1 where there is none."""
        try:
            self._ask("stat", path)
        except FileNotFoundError:
            return -1
        return int(self._line().split()[7])

    def write(self, path: str, data: bytes, offset: int, mode: int = 0o600) -> None:
        """Write at an offset; the file is made where there is none. The same call twice does no more than once."""
        handle = self._ask("open", path, "wc", str(mode))
        self._line()  # what stat says of it
        try:
            for begin in range(0, len(data), _CHUNK):
                rest = data[begin : begin + _CHUNK]
                while rest:
                    written = self._ask("pwrite", str(handle), str(len(rest)), str(offset), data=rest)
                    if written == 0:
                        raise OSError(errno.EIO, "nothing was written", path)
                    rest, offset = rest[written:], offset + written
        finally:
            self._ask("close", str(handle))

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        return self._data(self._ask("getfile", path))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file from the access point, of any size."""
        left = self._ask("getfile", path)
        with open(target, "wb") as file:
            while left:
                data = self._data(min(left, _CHUNK))
                file.write(data)
                left -= len(data)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return self._data(self._ask("getdir", path)).decode(errors="surrogateescape").split("\n")

    def make_folder(self, path: str) -> None:
        """Make a folder, unless it is there."""
        with suppress(FileExistsError):
            self._ask("mkdir", path, str(0o700))

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._ask("unlink", path)

    def remove_all(self, path: str) -> None:
        """Remove a folder with all that it holds, if it is there."""
        with suppress(FileNotFoundError):
            self._ask("rmall", path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder."""
        self._ask("rename", old, new)

    def set_attribute(self, name: str, value: object) -> None:
        """Set an attribute of the job; texts get their quotes here."""
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else str(value)
        self._ask("set_job_attr", name, text)

    def _ask(self, command: str, *words: str, data: bytes = b"") -> int:
        """Send one command and return the count that is answered."""
        line = " ".join([command, *map(_quoted, words)]).encode(errors="surrogateescape") + b"\n"
        if len(line) > _MOST_LINE:
            raise OSError(errno.ENAMETOOLONG, "too long for Chirp", words[0])
        self._socket.sendall(line + data)
        answer = self._line()
        try:
            count = int(answer)
        except ValueError:
            raise OSError(errno.EPROTO, f"Chirp answered {answer[:80]!r}") from None
        if count < 0:
            number = _ERRORS.get(count, errno.EIO)
            raise OSError(number, os.strerror(number), words[0] if words else command)
        return count

    def _line(self) -> str:
        line = self._answers.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionResetError(errno.ECONNRESET, "the starter has hung up")
        return line.decode(errors="surrogateescape").strip()

    def _data(self, length: int) -> bytes:
        data = self._answers.read(length)
        if len(data) < length:
            raise ConnectionResetError(errno.ECONNRESET, "the starter has hung up")
        return data


def _quoted(word: str) -> str:
    return "".join("\\" + char if char in "\\ \n\t\r" else char for char in word)
