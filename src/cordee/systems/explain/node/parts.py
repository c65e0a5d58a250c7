"""Files in parts on one pipe: a line of JSON that says how long what follows is, then that."""

from __future__ import annotations

import json
from typing import BinaryIO, Iterator, NamedTuple

PART_BYTES = 1 << 20


class FilePart(NamedTuple):
    """What follows is a part of a file, `last` if it is the file's last one; no `name`: all has been told, but for `text`."""

    name: str
    last: bool
    text: str
    size: int


def write_file(out: BinaryIO, name: str, content: bytes) -> None:
    """Write a whole file."""
    for start in range(0, max(1, len(content)), PART_BYTES):
        part = content[start : start + PART_BYTES]
        _write(out, FilePart(name, start + PART_BYTES >= len(content), "", len(part)), part)


def write_parts(out: BinaryIO, name: str, parts: Iterator[bytes]) -> None:
    """Write a file whose parts are made meanwhile, each of `PART_BYTES` at most."""
    for part in parts:
        _write(out, FilePart(name, False, "", len(part)), part)
    _write(out, FilePart(name, True, "", 0), b"")


def write_end(out: BinaryIO, text: str) -> None:
    """Say that there is no more, and what could not be had."""
    _write(out, FilePart("", False, text, 0), b"")


def _write(out: BinaryIO, part: FilePart, content: bytes) -> None:
    out.write(json.dumps(part).encode() + b"\n" + content)
    out.flush()


class PartReader:
    """Reads what the others write, piece by piece as it comes.

    Attributes:
        over: whether all has been told.
    """

    def __init__(self) -> None:
        self.over = False
        self._data = b""

    def read(self, data: bytes) -> Iterator[tuple[FilePart, bytes]]:
        """Yield the parts that are whole now."""
        self._data += data
        while True:
            line, end, rest = self._data.partition(b"\n")
            part = FilePart(*json.loads(line)) if end else None
            if part is None or len(rest) < part.size:
                return
            self._data = rest[part.size :]
            self.over = self.over or not part.name
            yield part, rest[: part.size]
