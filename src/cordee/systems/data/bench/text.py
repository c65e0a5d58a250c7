"""A measurement as people read it in a terminal."""

from __future__ import annotations

from cordee.core.units import format_duration, format_size
from cordee.systems.data.bench.measure import BenchResult
from cordee.systems.data.bench.rounds import CacheState


def render(result: BenchResult) -> str:
    """Return the lines of a measurement: rates beside the limit, latency, cost, requests, advice."""
    lines = [_title(result), ""]
    for name in sorted(result.states, key=lambda name: name != result.main):
        lines += [*_state(result.states[name], main=name == result.main), ""]
    lines += [f"memory copy     {format_size(result.copy_bytes_per_s)}/s, one thread"]
    if result.without_workers is not None:
        lines.append(f"without workers {result.without_workers:.0f} samples/s")
    lines += [f"note: {note}" for note in result.notes]
    if result.kept:
        lines.append(f"the limit is kept for the reports of trainings: {result.kept}")
    lines += (
        ["", *(str(finding) for finding in result.findings)]
        if result.findings
        else ["", "nothing to improve was found"]
    )
    return "\n".join(lines)


def _title(result: BenchResult) -> str:
    settings, pieces = result.settings, result.pieces
    loader = settings.function or "cordee.dataset"
    held = (
        f": {pieces.samples / pieces.per_sample:.0f} samples, {format_size(pieces.bytes)}"
        if pieces and pieces.kind != "blocks"
        else ""
    )
    return f"{loader} on {settings.target}{held}"


def _state(state: CacheState, *, main: bool) -> list[str]:
    where = {"warm": "from the page cache", "cold": "from storage", "remote": "from the object store"}[state.cache]
    rate = f"{state.samples_per_s:.0f} samples/s"
    if state.bytes_per_s is not None:
        rate += f", {format_size(state.bytes_per_s)}/s"
    if state.share_of_limit is not None:
        rate += f", {state.share_of_limit:.0%} of the limit"
    latency = ", ".join(f"{name} {1000 * value:.3g} ms" for name, value in state.latency_s.items())
    lines = [
        f"{state.cache} ({where}){', the state that counts here' if main else ''}",
        f"  loader        {rate}",
        f"  limit         {_limit(state)}",
        f"  a batch       {latency}; the first {format_duration(state.first_batch_s)}",
        f"  processor     {state.cpu_s:.3f} s per 1000 samples, {state.cores:.2f} cores, {state.processes} processes",
    ]
    lines.append(f"  requests      {_requests(state)}")
    low, high = min(state.samples_per_s_rounds), max(state.samples_per_s_rounds)
    lines.append(f"  rounds        {state.rounds}, {low:.0f} to {high:.0f} samples/s; {state.samples} samples in all")
    return lines


def _limit(state: CacheState) -> str:
    if state.limit_bytes_per_s is None:
        return "not measured"
    parts = []
    if state.bare_bytes_per_s is not None:
        parts.append(f"bare reads in the same order {format_size(state.bare_bytes_per_s)}/s")
    if state.direct_bytes_per_s is not None:
        how = "8 MiB ranges by 8 threads" if state.cache == "remote" else "one after the other past the cache"
        parts.append(f"{how} {format_size(state.direct_bytes_per_s)}/s")
    return f"{format_size(state.limit_bytes_per_s)}/s ({', '.join(parts)})"


def _requests(state: CacheState) -> str:
    if not state.reads_seen or state.bytes_per_read is None:
        return "not known: /proc does not count how these samples are read"
    each = f"{format_size(state.bytes_per_read)} on average, {state.reads_per_sample:.2f} a sample"
    return f"{each}, pipes between processes included"
