"""The system calls of a short run of the loader, as strace shows them: requests with their sizes, and metadata calls."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordee.systems.data.bench.child import MARKER

READS = ("read", "pread64", "readv", "preadv", "preadv2")
METADATA = ("open", "openat", "openat2", "stat", "lstat", "newfstatat", "fstat", "statx", "access", "faccessat",
            "faccessat2", "getdents64", "readlink", "readlinkat")  # fmt: skip
_MAPPED = ("mmap",)
_LISTED = ("io_submit",)
# `1234  pread64(3</data/a.tar>, ""..., 5000, 512) = 5000`; -f adds the thread, -y the path.
_CALL = re.compile(r"^(?:\[pid\s+)?(?P<thread>\d+)\]?\s+(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?:\[pid\s+)?(?P<thread>\d+)\]?\s+<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_RESULT = re.compile(r"=\s+(-?\d+)(?:<[^>]*>)?(?: [A-Z]+ .*| \(.*)?$")
# One read of a list, which `abbrev=!io_submit` leaves whole.
_READ_OF_LIST = re.compile(
    r"IOCB_CMD_PREAD\w*, [^{}]*?aio_fildes=\d+(?P<file><[^>]*>), [^{}]*?aio_nbytes=(?P<bytes>\d+)"
)
_RELATIVE = re.compile(r'<([^>]*)>, "([^"/][^"]*)"')
_UNFINISHED = "<unfinished ...>"


@dataclass
class SystemCalls:
    """What a loader asked of the system between the markers.

    Attributes:
        metadata: calls by name that open, look at or list a file or folder of the data set.
        sizes: of requests that read from files of the data set, by bytes given; of lists of reads, by bytes asked for.
        mapped: calls that map a file of the data set into memory: what is read through it is not seen.
    """

    metadata: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    mapped: int = 0


def front(output: Path) -> list[str] | None:
    """Return what stands before a command to trace it into a file; None when there is no strace."""
    found = shutil.which("strace")
    if found is None:
        return None
    calls = ",".join(f"?{name}" for name in (*READS, *METADATA, *_MAPPED, *_LISTED))
    only = ["-e", f"trace={calls}", "-e", "abbrev=!io_submit", "-e", "signal=none"]
    return [found, "-f", "-y", "-qq", "-s", "1", *only, "-o", str(output)]


def read_trace(lines: Iterable[str], places: Sequence[str]) -> SystemCalls:
    """Return what strace wrote between two markers.

    Args:
        lines: of its output, in the order of time.
        places: paths of the data set: calls for other files (code, pipes between workers) are not counted.
    """
    found, inside = SystemCalls(), False
    roots = {form for place in places for form in (os.path.realpath(place), os.path.abspath(place))}
    about = re.compile('[<"](?:' + "|".join(re.escape(root) for root in sorted(roots)) + ')[/>"]')
    begun: dict[str, tuple[str, str]] = {}
    for line in lines:
        if MARKER in line:
            if inside:
                break
            inside = True
            continue
        call = _whole(line.rstrip("\n"), begun)
        if call is not None and inside:
            _count(found, *call, about)
    return found


def _whole(line: str, begun: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return a call's name and its arguments with the result, joined when another thread came between."""
    resumed = _RESUMED.match(line)
    if resumed is not None:
        name, rest = begun.pop(resumed["thread"], (resumed["name"], ""))
        return name, rest + resumed["rest"]
    call = _CALL.match(line)
    if call is None:
        return None
    if call["rest"].endswith(_UNFINISHED):
        begun[call["thread"]] = (call["name"], call["rest"].removesuffix(_UNFINISHED))
        return None
    return call["name"], call["rest"]


def _count(found: SystemCalls, name: str, rest: str, about: re.Pattern[str]) -> None:
    """Count one call if it is about the data set."""
    if "RWF_NOWAIT" in rest:  # asks whether something is in memory, and storage nothing
        return
    if name in _LISTED:
        reads = _READ_OF_LIST.finditer(rest)
        found.sizes += [int(read["bytes"]) for read in reads if about.search(read["file"])]
        return
    relative = _RELATIVE.search(rest)
    named = f'"{os.path.normpath(os.path.join(relative[1], relative[2]))}"' if relative else ""
    if not about.search(rest) and not about.match(named):
        return
    if name in METADATA:
        found.metadata[name] += 1
    elif name in _MAPPED:
        found.mapped += 1
    else:
        result = _RESULT.search(rest)
        if result is not None and int(result[1]) > 0:
            found.sizes.append(int(result[1]))
