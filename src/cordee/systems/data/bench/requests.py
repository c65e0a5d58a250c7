"""Requests to storage and metadata calls of a loader: counted by itself, by a trace, or as averages, and by whom."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cordee.core.errors import DataError
from cordee.systems.data.bench.darshan import preload, read_log
from cordee.systems.data.bench.remote import LoaderProcess
from cordee.systems.data.bench.rounds import CacheState
from cordee.systems.data.bench.settings import Settings
from cordee.systems.data.bench.trace import front, read_trace

_TRACED_BATCHES = 40
_TRACED_S = 8.0
_START_S = 600.0


@dataclass(frozen=True)
class SampleRequests:
    """Requests that read samples.

    Attributes:
        source: who counted them.
        per_sample: how many a sample takes; below 1 where one request reads several.
        mean_bytes: of a request; None: not known.
        histogram: `{upper bound in bytes, a power of two or Darshan's: requests}`, 0: no bound; None where only averages are
            known.
    """

    source: str
    per_sample: float | None
    mean_bytes: float | None
    histogram: dict[int, int] | None


@dataclass(frozen=True)
class Metadata:
    """Calls that open, look at or list files and folders of the data set.

    Attributes:
        source: who counted them, or why nobody did.
        per_sample: None: not known.
        calls: by name.
    """

    source: str
    per_sample: float | None
    calls: dict[str, int]


def look(settings: Settings, state: CacheState, places: Sequence[str]) -> tuple[SampleRequests, Metadata]:
    """Return what a loader asks of storage, from the best source that there is.

    Args:
        state: what rounds have shown; holds what Cordée's reader counted.
        places: paths at which the data set's files lie.
    """
    requests, metadata, why = None, None, "not asked for"
    if settings.trace:
        requests, metadata, why = _traced(settings, places)
        if metadata is None:
            requests, metadata, why = _counted(settings, places, why)
    return _own(state) or requests or _averages(state), metadata or _opens(state, why)


def _traced(settings: Settings, places: Sequence[str]) -> tuple[SampleRequests | None, Metadata | None, str]:
    """Run the loader shortly under strace; return what it showed, or why there is nothing."""
    with tempfile.TemporaryDirectory(prefix="cordee-bench-") as folder:
        output = Path(folder) / "calls"
        command = front(output)
        if command is None:
            return None, None, "strace is not installed"
        try:
            samples = _short_run(settings, command)
        except DataError as error:
            return None, None, f"under strace {error.text}"
        with output.open(errors="replace") as lines:
            found = read_trace(lines, places)
    source = f"strace, {samples} samples and what was read ahead"
    calls = dict(found.metadata.most_common())
    metadata = Metadata(source, sum(calls.values()) / samples, calls)
    if found.sizes:
        sizes = Counter(1 << max(0, size - 1).bit_length() for size in found.sizes)
        mean = sum(found.sizes) / len(found.sizes)
        return SampleRequests(source, len(found.sizes) / samples, mean, dict(sorted(sizes.items()))), metadata, ""
    if found.mapped:
        told = "the files are mapped into memory: strace sees no requests"
        return SampleRequests(told, None, None, None), metadata, ""
    return None, metadata, ""


def _counted(settings: Settings, places: Sequence[str], why: str) -> tuple[SampleRequests | None, Metadata | None, str]:
    """Run the loader shortly under Darshan; return what it counted, or why there is nothing."""
    with tempfile.TemporaryDirectory(prefix="cordee-bench-") as folder:
        output = Path(folder) / "loader.darshan"
        variables = preload(output)
        if variables is None:
            return None, None, f"{why}, nor is Darshan"
        try:
            samples = _short_run(settings, (), variables)
            found = read_log(output, places)
        except DataError as error:
            return None, None, f"{why}; under Darshan {error.text}"
    if not found.files:
        return None, None, f"{why}; Darshan recorded no file of the data set"
    source = f"Darshan, {samples} samples, {found.files} files, without worker processes"
    metadata = Metadata(source, found.metadata.total() / samples, dict(found.metadata.most_common()))
    if not found.reads:
        return None, metadata, ""
    sizes = dict(sorted(found.histogram.items(), key=lambda one: one[0] or float("inf")))
    return SampleRequests(source, found.reads / samples, found.bytes / found.reads, sizes), metadata, ""


def _short_run(settings: Settings, command: Sequence[str], variables: dict[str, str] | None = None) -> int:
    """Return how many samples a short run of the loader gave."""
    with LoaderProcess(settings.request, command, _START_S, variables=variables) as loader:
        played = loader.play(_TRACED_S, batches=_TRACED_BATCHES, again=False)
    return int(sum(played["samples"]))


def _own(state: CacheState) -> SampleRequests | None:
    counts = state.counts
    if counts is None or not counts["requests"]:
        return None
    histogram = {1 << power: number for power, number in enumerate(counts["sizes"]) if number}
    each = counts["requests"] / state.samples
    return SampleRequests("counted by Cordée's reader", each, counts["bytes"] / counts["requests"], histogram)


def _averages(state: CacheState) -> SampleRequests:
    if state.bytes_per_read is None:
        return SampleRequests("not known: neither strace nor /proc/PID/io tells", None, None, None)
    told = "/proc: averages over all reading of the processes, pipes between workers included"
    return SampleRequests(told, state.reads_per_sample, state.bytes_per_read, None)


def _opens(state: CacheState, why: str) -> Metadata:
    if state.counts is None:
        return Metadata(f"not known: {why}", None, {})
    opens = state.counts["opens"]
    return Metadata(f"counted by Cordée's reader, opens only ({why})", opens / state.samples, {"open": opens})
