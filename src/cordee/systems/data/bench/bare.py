"""What storage and memory give without a loader: the limit that a loader is compared with."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cordee.systems.data.bench.pieces import SampleSpans

_DIRECT_BLOCK = 8 << 20
_DIRECT_MOST_BYTES = 1 << 30
_COPY_BYTES = 64 << 20
_PROBES = 256


class Read(NamedTuple):
    """One pass of a bare loop: samples, payload bytes, wall and CPU seconds."""

    samples: int
    bytes: int
    seconds: float
    cpu_s: float


def read_bare(pieces: SampleSpans, samples: np.ndarray, most_s: float = 600.0) -> Read:
    """Read the bytes of samples in the given order, one `pread` each; files of one sample are opened and closed for it.

    Args:
        samples: int64[n], numbers of samples.
        most_s: stop after so many seconds; the answer counts what was read.

    Raises:
        OSError: storage failed.
    """
    if pieces.kind == "files":
        return _read_files(pieces, samples, most_s)
    with _opened(pieces, samples) as descriptors:
        fds = descriptors[pieces.file[samples]].tolist()
        offsets, spans = pieces.offset[samples].tolist(), pieces.span[samples].tolist()
        pread, now, done = os.pread, time.perf_counter, 0
        cpu_s, began = _cpu_s(), now()
        for first in range(0, len(fds), 256):
            last = first + 256
            for fd, span, offset in zip(fds[first:last], spans[first:last], offsets[first:last], strict=True):
                pread(fd, span, offset)
            done = min(last, len(fds))
            if now() - began > most_s:
                break
        seconds = now() - began
    return Read(done, int(pieces.payload[samples[:done]].sum()), seconds, _cpu_s() - cpu_s)


def _read_files(pieces: SampleSpans, samples: np.ndarray, most_s: float) -> Read:
    paths = [pieces.files[at] for at in pieces.file[samples].tolist()]
    spans = pieces.span[samples].tolist()
    done, cpu_s, began = 0, _cpu_s(), time.perf_counter()
    for path, span in zip(paths, spans, strict=True):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.pread(fd, span, 0)
        os.close(fd)
        done += 1
        if not done % 256 and time.perf_counter() - began > most_s:
            break
    seconds = time.perf_counter() - began
    return Read(done, int(pieces.payload[samples[:done]].sum()), seconds, _cpu_s() - cpu_s)


@contextlib.contextmanager
def _opened(pieces: SampleSpans, samples: np.ndarray) -> Iterator[np.ndarray]:
    """Open the files that samples lie in; gives int64[files] of descriptors."""
    found = np.full(len(pieces.files), -1, np.int64)
    try:
        for at in np.unique(pieces.file[samples]).tolist():
            found[at] = os.open(pieces.files[at], os.O_RDONLY | os.O_CLOEXEC)
        yield found
    finally:
        for fd in found[found >= 0].tolist():
            os.close(fd)


def fitting(pieces: SampleSpans, order: np.ndarray, most_bytes: int) -> np.ndarray:
    """Return the beginning of an order that holds at most so many bytes, at least one sample.

    What it touches of packed files must be open at once: the process's own limit of files is respected.
    """
    total = np.cumsum(pieces.span[order])
    order = order[: max(1, int(np.searchsorted(total, most_bytes, side="right")))]
    most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    if pieces.kind == "packed" and len(pieces.files) > most_open:
        order = order[pieces.file[order] < most_open]
    return order


def drop(files: Sequence[str], *, written: bool = False) -> None:
    """Ask the kernel to forget what it holds of files (POSIX_FADV_DONTNEED); names and sizes stay cached.

    Args:
        written: write out first what was changed lately: it cannot be forgotten before.

    Raises:
        OSError: a file cannot be opened.
    """
    for path in files:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if written:
                os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def cached_share(pieces: SampleSpans, samples: np.ndarray) -> float | None:
    """Return the share (0-1) of probed bytes that lie in the page cache; None where the file system does not tell.

    A read that must not wait (RWF_NOWAIT) fails where the byte is not there.
    """
    chosen = samples[:: max(1, len(samples) // _PROBES)][:_PROBES]
    there = asked = 0
    buffer = bytearray(1)
    for at in chosen.tolist():
        if not pieces.span[at]:
            continue
        fd = os.open(pieces.files[pieces.file[at]], os.O_RDONLY | os.O_CLOEXEC)
        try:
            middle = int(pieces.offset[at] + pieces.span[at] // 2)
            there += os.preadv(fd, [buffer], middle, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            pass
        except OSError:
            return None
        finally:
            os.close(fd)
        asked += 1
    return there / asked if asked else None


def direct_rate(files: Sequence[str], most_s: float = 1.0, begin: int = 0) -> float | None:
    """Return bytes per second of reading files one after the other past the page cache (O_DIRECT, 8 MiB at a time).

    Args:
        begin: byte of the first file to begin at, so that rounds read other parts.

    Returns:
        None where the file system has no O_DIRECT, or there are only small files.
    """
    total, began = 0, time.perf_counter()
    with mmap.mmap(-1, _DIRECT_BLOCK) as buffer:
        for path in files:
            if os.path.getsize(path) < _DIRECT_BLOCK:
                continue
            try:
                total += _read_direct(path, buffer, began + most_s, begin // _DIRECT_BLOCK * _DIRECT_BLOCK)
            except OSError:
                return None
            begin = 0
            if time.perf_counter() - began > most_s or total >= _DIRECT_MOST_BYTES:
                break
    return total / (time.perf_counter() - began) if total else None


def _read_direct(path: str, buffer: mmap.mmap, until: float, offset: int) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    total = 0
    try:
        while time.perf_counter() < until and total < _DIRECT_MOST_BYTES:
            got = os.preadv(fd, [buffer], offset + total)
            total += got
            if got < _DIRECT_BLOCK:
                break
    finally:
        os.close(fd)
    return total


def copy_rate(rounds: int = 5) -> float:
    """Return bytes per second of copying memory, one thread, blocks of 64 MiB; the median."""
    source, target = np.ones(_COPY_BYTES, np.uint8), np.zeros(_COPY_BYTES, np.uint8)
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        target[:] = source
        rates.append(_COPY_BYTES / (time.perf_counter() - began))
    return statistics.median(rates)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
