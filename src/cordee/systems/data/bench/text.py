"""A measurement as people read it in a terminal."""

from __future__ import annotations

from cordee.core.units import format_duration, format_size
from cordee.systems.data.bench.measure import BenchResult
from cordee.systems.data.bench.rounds import CacheState

_BAR = 40


def render(result: BenchResult) -> str:
    """Return the lines of a measurement: rates beside the limit, latency, cost, requests, advice."""
    lines = [_title(result), ""]
    for name in sorted(result.states, key=lambda name: name != result.main):
        lines += [*_state(result.states[name], main=name == result.main), ""]
    lines += [*_requests(result), ""]
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


def _requests(result: BenchResult) -> list[str]:
    requests, metadata = result.requests, result.metadata
    mean = "" if requests.mean_bytes is None else f"{format_size(requests.mean_bytes)} on average, "
    each = "" if requests.per_sample is None else f"{requests.per_sample:.2f} a sample "
    lines = [f"requests        {mean}{each}({requests.source})"]
    most = max((requests.histogram or {0: 1}).values())
    for bound, number in (requests.histogram or {}).items():
        lines.append(f"  up to {_bound(bound):>8}  {number:>8}  {'#' * max(1, round(_BAR * number / most))}")
    each = "not known" if metadata.per_sample is None else f"{metadata.per_sample:.3f} a sample"
    calls = ", ".join(f"{name} {number}" for name, number in metadata.calls.items())
    lines.append(f"metadata calls  {each} ({metadata.source}{'; ' + calls if calls else ''})")
    return lines


def _bound(size: int) -> str:
    """Return a bound as people read it: `64 KiB`; 0: there is none."""
    if not size:
        return "any"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size //= 1024
    return f"{size} {unit}"
