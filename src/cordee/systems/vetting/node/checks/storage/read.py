"""Does the storage read as fast as it should?"""

from __future__ import annotations

import mmap
import os
import secrets
import time
from dataclasses import asdict
from typing import Any, Optional

from cordee.core.units import format_size
from cordee.machine.limited import HangingError, answers_within
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result

_BYTES = 64 << 20
_BLOCK = 4 << 20
_SECONDS = 2.0
_RATIO = 0.5
_SETTLING_S = 5.0


class ReadCheck(Check):
    """Reads a file, or one that it writes and removes, past the node's own cache, and times it.

    With `O_DIRECT` where the file system has it, else after telling the kernel to forget the file. The time to write is
    not counted.
    """

    name = "storage.read"
    title = "Does the storage read as fast as it should?"
    alone = True
    parameters = (
        Parameter("file", "text", "what to read"),
        Parameter(
            "folder", "text", "where to write a file to read, where none is given; without it, the working folder"
        ),
        Parameter("bytes", "size", "how much to read", default=_BYTES),
        Parameter("max_seconds", "duration", "how long that may take", default=_SECONDS, unit="s"),
        Parameter(
            "min_ratio", "ratio", "least speed against the peers' 75th percentile", default=_RATIO, unit="of the peers"
        ),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        file = parameters.get("file")
        path = os.path.join(context.workdir, file or parameters.get("folder") or ".")
        size, limit = max(1, parameters["bytes"]), parameters["max_seconds"]
        patience = max(0.1, min(context.deadline_s - 0.5, limit * 2 + _SETTLING_S))
        ask = (lambda: _read(path, size)) if file else (lambda: _write_and_read(path, size))
        answer = answers_within(patience, {path: ask})[path]
        if isinstance(answer, HangingError):
            text = f"{path} hangs: {format_size(size)} could not be read within {patience:.3g} s"
            return self.result("fail", text, unit="bytes/s", facts={"hanging": [path]})
        if isinstance(answer, OSError):
            cause = "closed" if isinstance(answer, PermissionError) else "absent"
            raise CannotTest(f"{path} cannot be read: {answer.strerror}", cause)
        got, seconds, way = answer
        if not got:
            raise CannotTest(f"{path} is empty", "absent")
        rate, least = got / seconds, size / limit
        slow = rate < least
        evidence = f"{format_size(got)} of {path} in {seconds:.3g} s: {format_size(int(rate))}/s ({way})"
        return self.result(
            "fail" if slow else "pass",
            evidence + (f", {format_size(int(least))}/s needed" if slow else ""),
            value=round(rate),
            unit="bytes/s",
            threshold=round(least),
            facts={"bytes": got, "seconds": seconds, "way": way},
            compare=[asdict(Comparison("low", ratio=parameters["min_ratio"]))],
        )


def _write_and_read(folder: str, size: int) -> list[Any]:
    name = os.path.join(folder, f".cordee-check-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        direct = _direct(name)
        # Nothing is left behind when this process is killed.
        os.unlink(name)
        block = secrets.token_bytes(_BLOCK)
        written = 0
        while written < size:
            written += os.write(descriptor, block[: size - written])
        os.fsync(descriptor)
        return _time(descriptor, direct, size)
    finally:
        os.close(descriptor)


def _read(path: str, size: int) -> list[Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _time(descriptor, _direct(path), size)
    finally:
        os.close(descriptor)


def _direct(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


def _time(descriptor: int, direct: Optional[int], size: int) -> list[Any]:
    """Return bytes, seconds and the way they were read."""
    # A page-aligned buffer, as O_DIRECT asks for.
    with mmap.mmap(-1, _BLOCK) as buffer:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if direct is not None:
            try:
                return [*_timed(direct, buffer, size), "O_DIRECT"]
            except OSError:
                pass  # some file systems open with O_DIRECT and then refuse to read
        return [*_timed(descriptor, buffer, size), "after dropping it from the cache"]


def _timed(descriptor: int, buffer: mmap.mmap, size: int) -> tuple[int, float]:
    got, started = 0, time.perf_counter()
    while got < size:
        part = os.preadv(descriptor, [buffer], got)
        if not part:
            break
        got += part
        if part < _BLOCK and got % mmap.PAGESIZE:
            break  # the file's end
    return min(got, size), max(time.perf_counter() - started, 1e-9)
