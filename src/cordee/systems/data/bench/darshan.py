"""Requests and metadata calls of a short run as Darshan counts them, where there is no strace: centres have it as a module."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordee.core.errors import DataError

_PARSE_S = 300.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_METADATA = {"POSIX_OPENS": "open", "POSIX_STATS": "stat", "STDIO_OPENS": "fopen"}
_READS = ("POSIX_READS", "STDIO_READS")
_BYTES = ("POSIX_BYTES_READ", "STDIO_BYTES_READ")
_SIZES = "POSIX_SIZE_READ_"


@dataclass
class Counted:
    """What Darshan counted for the files of a data set.

    Attributes:
        metadata: calls by name.
        reads, bytes: requests that read, and what they gave.
        histogram: requests by the upper bound of their size, in Darshan's ranges; 0: no bound.
        files: how many files it has records of; it keeps some thousand at most.
    """

    metadata: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    bytes: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    files: int = 0


def preload(output: Path) -> dict[str, str] | None:
    """Return the variables under which a program is counted into a log; None when Darshan is not there.

    Source: Darshan's own documentation of its run time: LD_PRELOAD, DARSHAN_ENABLE_NONMPI, DARSHAN_LOGFILE.
    """
    library = _library()
    if library is None or shutil.which("darshan-parser") is None:
        return None
    loaded = [part for part in os.environ.get("LD_PRELOAD", "").split(":") if part and "libdarshan" not in part]
    return {"LD_PRELOAD": ":".join([library, *loaded]), "DARSHAN_ENABLE_NONMPI": "1", "DARSHAN_LOGFILE": str(output)}


def _library() -> str | None:
    for part in os.environ.get("LD_PRELOAD", "").split(":"):
        if "libdarshan" in part:
            return part
    for tool in ("darshan-config", "darshan-parser"):
        found = shutil.which(tool)
        if found is not None:
            library = Path(os.path.realpath(found)).parent.parent / "lib" / "libdarshan.so"
            if library.exists():
                return str(library)
    return None


def read_log(log: Path, places: Sequence[str]) -> Counted:
    """Return what a log holds of files below `places`.

    Raises:
        DataError: there is no log, or darshan-parser cannot read it.
    """
    try:
        done = subprocess.run(
            ["darshan-parser", str(log)], capture_output=True, text=True, timeout=_PARSE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"darshan-parser failed: {error}", given=str(log)) from None
    if done.returncode:
        raise DataError("darshan-parser cannot read its log", given=done.stderr.strip()[-200:] or str(log))
    return count(done.stdout.splitlines(), places)


def count(lines: Iterable[str], places: Sequence[str]) -> Counted:
    """Return what the text of darshan-parser says of files below `places`.

    Args:
        lines: module, rank, record, counter, value, file name, mount point, file system, by tabs; `#` begins comments.
    """
    roots = tuple({form for place in places for form in (os.path.realpath(place), os.path.abspath(place))})
    found, files = Counted(), set()
    for line in lines:
        parts = line.split("\t")
        if line.startswith("#") or len(parts) < 6 or not _below(parts[5], roots):
            continue
        counter, value = parts[3], _number(parts[4])
        files.add(parts[5])
        if counter in _METADATA and value > 0:
            found.metadata[_METADATA[counter]] += value
        elif counter in _READS:
            found.reads += max(0, value)
        elif counter in _BYTES:
            found.bytes += max(0, value)
        elif counter.startswith(_SIZES) and value > 0:
            found.histogram[_bound(counter.removeprefix(_SIZES))] += value
    found.files = len(files)
    return found


def _below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)


def _number(text: str) -> int:
    try:
        return int(float(text))
    except ValueError:
        return 0


def _bound(name: str) -> int:
    """Return the upper bound of a range such as `10K_100K`; 0 of `1G_PLUS`."""
    upper = name.rpartition("_")[2]
    digits = upper.rstrip("KMG")
    return int(digits) * _UNITS[upper[len(digits) :]] if digits.isdigit() else 0
