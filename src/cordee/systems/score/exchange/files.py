"""Other tools' files: found in folders, read as text, JSON or tables, with the line of every fault."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError, UsageError
from cordee.machine.foreign_files import regular

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"SQLite format 3\0": "a data base, as `gssr` exports them: they hold one GPU of each process only",
    b"\x80": "a Python pickle: these run code when they are read, and are never opened",
}


def files_below(paths: Sequence[Path], wanted: Callable[[Path], bool], what: str) -> list[Path]:
    """Return the files given, and those below the folders given that are `wanted`, in order.

    Raises:
        UsageError: one does not exist, or a folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(each for each in path.rglob("*") if each.is_file() and wanted(each))
            if not below:
                raise UsageError(f"there is no such file in this folder: {what}", given=str(path), allowed=what)
            found.update(dict.fromkeys(below))
        elif path.is_file():
            found[path] = None
        else:
            raise UsageError("there is no such file", given=str(path), allowed=what)
    return list(found)


def read_text(path: Path) -> str:
    """Return a file's text with plain line ends, none at the end; a gzip file is unpacked.

    Raises:
        DocumentError: it cannot be read, is empty, or is no text.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            data = file.read()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        text = "the file is torn" if isinstance(error, EOFError | zlib.error) else f"cannot be read: {error}"
        raise DocumentError(text, file=str(path)) from error
    for magic, what in _OTHERS.items():
        if data.startswith(magic):
            raise DocumentError(f"this is {what}", file=str(path), next="import the files that it was made from")
    text = text_of(data, str(path)).replace("\r\n", "\n").rstrip("\n")
    if not text.strip():
        raise DocumentError("the file is empty", file=str(path), next="was the recorder killed before it wrote?")
    return text


def read_json(path: Path) -> Any:
    """Return a JSON document.

    Raises:
        DocumentError: it is none, or is torn: with the line.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except RecursionError:
        raise DocumentError("this JSON is nested too deeply", file=str(path)) from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        torn = line >= text.count("\n") and getattr(error, "pos", 0) >= len(text.rstrip()) - 1
        raise DocumentError(
            "the JSON ends too early: the file is torn" if torn else "this is no JSON",
            file=str(path),
            line=line,
            given=str(error),
            next="copy the file again, or leave it out" if torn else None,
        ) from error


def read_table(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the names of a CSV table's columns and its rows, each with its line.

    Raises:
        DocumentError: it cannot be read; while rows are taken: one has another length than the header.
    """
    lines = read_text(path).split("\n")
    header = next(csv.reader(lines[:1]))
    return [name.strip() for name in header], _rows(path, lines, len(header))


def _rows(path: Path, lines: list[str], width: int) -> Iterator[tuple[int, list[str]]]:
    for line, text in enumerate(lines[1:], 2):
        if not text.strip():
            continue
        row = next(csv.reader([text]))
        if len(row) != width:
            raise DocumentError(
                "this row has another number of columns than the header"
                + (": the file is torn" if line == len(lines) else ""),
                file=str(path),
                line=line,
                given=len(row),
                allowed=str(width),
            )
        yield line, row


def number(path: Path, line: int, column: str, text: str) -> float:
    """Return a number of a table; empty, `nan` and `N/A` are NaN.

    Raises:
        DocumentError: it is none.
    """
    word = text.strip()
    if word.lower() in ("", "nan", "-nan", "n/a", "none", "null"):
        return math.nan
    try:
        return float(word)
    except ValueError:
        raise DocumentError(
            f"{column} is no number", file=str(path), line=line, given=word, allowed="a number, nan or nothing"
        ) from None
