"""How fast files are opened and read where a data set lies, on a small sample of it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence

from cordee.systems.data.survey.magic import open_quietly

_FILES = 64
_BYTES = 64 << 20
_FIRST_BYTES = 65536
_LARGE_BYTES = 4 << 20
_READ_BYTES = 4 << 20


def measure(
    samples: Sequence[str], clock: Callable[[], float] = time.perf_counter
) -> tuple[float | None, float | None]:
    """Return (files opened per second, bytes read per second) of one reader; None for what no sample could tell.

    A file counts as opened when it is open, its first bytes are read, and it is closed. Bytes are told by large files only.
    What the page cache holds of a sample is given up first; names and attributes, just looked at, are still at hand: a
    first look at the files is slower.
    """
    chosen = list(samples)
    random.Random(0).shuffle(chosen)
    opened = read = 0
    open_s = read_s = 0.0
    for path in chosen[:_FILES]:
        try:
            _forget(path)
            begin = clock()
            file = open_quietly(path)
            try:
                os.read(file, _FIRST_BYTES)
            finally:
                os.close(file)
            open_s += clock() - begin
            opened += 1
            if os.path.getsize(path) >= _LARGE_BYTES and read < _BYTES:
                count, seconds = _read(path, clock)
                read, read_s = read + count, read_s + seconds
        except OSError:
            continue
    return (opened / open_s if open_s > 0 else None), (read / read_s if read_s > 0 else None)


def _read(path: str, clock: Callable[[], float]) -> tuple[int, float]:
    file, read = open_quietly(path), 0
    try:
        begin = clock()
        while read < _BYTES and (piece := os.read(file, _READ_BYTES)):
            read += len(piece)
        return read, clock() - begin
    finally:
        os.close(file)


def _forget(path: str) -> None:
    """Give up what the page cache holds of a file."""
    file = open_quietly(path)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
