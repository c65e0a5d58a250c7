"""The loading of data in a report: a sentence, the wait of a step over time, and the sizes of requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.draw.axes import nice_ticks, tick_text
from cordee.core.draw.charts import BOTTOM, HEIGHT, TOP, Across, ChartLine, framed, line_chart, text_of
from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.systems.data.loading.words import power_text

if TYPE_CHECKING:
    from cordee.systems.data.loading import LoadingView
    from cordee.systems.data.loading.curves import Curves
    from cordee.systems.data.loading.loads import Load

_NARROW = Across()
_MOST_SETS = 4


def loading_document(view: LoadingView) -> dict[str, Any]:
    """Return what a report's document has of loading: no curves, those are in the run's telemetry."""
    document = view.document()
    for one in document["sets"]:
        del one["curve"]
    return document


def loading_lines(view: LoadingView) -> list[str]:
    """Return sentences for the text report: each data set, then what is worth changing; none where there is nothing."""
    told = {load.place for load in view.loads}
    silent = [f"{place}: nothing was told of its loading" for place in _planned(view, told)]
    return [*view.texts, *silent, *map(_finding, view.findings)]


def loading_facts(view: LoadingView) -> list[tuple[str, str]]:
    """Return (name, what and where) of the data sets of `[data]`."""
    return [(str(one.get("name")), _about(one)) for one in view.planned]


def loading_charts(view: LoadingView, started_at: float | None) -> list[tuple[str, str]]:
    """Return (title, SVG) of the wait over time and of the request sizes, for the data sets that cost most.

    Args:
        started_at: what the charts count from, None: the first time of the view.
    """
    origin = started_at if started_at is not None else view.start
    both = sorted(zip(view.loads, view.curves, strict=True), key=lambda one: -one[0].totals["wait_seconds"])
    charts = []
    for load, curve in both[:_MOST_SETS]:
        if any(math.isfinite(value) for value in curve.wait_per_step_s.tolist()):
            charts.append((f"{load.name}: what a rank waited for data in a step, ms", _waits(load, curve, origin)))
        if load.requests:
            charts.append((f"{load.name}: requests to storage by size", _requests(load)))
    return charts


def _waits(load: Load, curve: Curves, origin: float) -> str:
    times = (curve.times - origin).tolist()
    lines = [ChartLine("mean over the ranks", times, (1000 * curve.wait_per_step_s).tolist())]
    if len(load.ranks) > 1:
        lines.append(ChartLine("the rank that waited most", times, (1000 * curve.wait_per_step_most_s).tolist()))
    title = f"{load.name}: wait for data in a step, in milliseconds"
    return line_chart(title, lines, x_label="s", zero=True)


def _requests(load: Load) -> str:
    """Return bars, one for each power of two between the smallest and the largest request."""
    counts = dict(load.requests)
    powers = range(min(counts).bit_length() - 1, max(counts).bit_length())
    values = [counts.get(1 << power, 0) for power in powers]
    title = f"{load.name}: requests by size"
    said = ", ".join(f"{count:,} of at most {power_text(size)}" for size, count in load.requests)
    labels = [f"≤ {power_text(1 << power)}" for power in powers]
    return framed(title, said, _NARROW.width, HEIGHT, _bars(labels, values))


def _bars(labels: Sequence[str], values: Sequence[int]) -> str:
    left, right = _NARROW.left, _NARROW.width - _NARROW.right
    ticks, bottom = nice_ticks(0, max(values)), HEIGHT - BOTTOM
    scale, step = (bottom - TOP) / ticks[-1], (right - left) / len(values)
    parts = []
    for tick in ticks:
        y = bottom - tick * scale
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{text_of(tick_text(tick))}</text>'
        )
    every = max(1, math.ceil(len(values) / 6))
    for at, (label, value) in enumerate(zip(labels, values, strict=True)):
        x, height = left + at * step, value * scale
        parts.append(
            f'<rect class="c0" x="{x + 0.1 * step:.1f}" y="{bottom - height:.1f}" width="{0.8 * step:.1f}" height="{height:.1f}">'
            f"<title>{text_of(f'{label}: {value:,}')}</title></rect>"
        )
        if at % every == 0:
            parts.append(
                f'<text class="tick" x="{x + step / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{text_of(label)}</text>'
            )
    return "".join(parts)


def _planned(view: LoadingView, told: set[str | None]) -> list[str]:
    return [
        f"{one.get('name')}, {_about(one)}" for one in view.planned if one.get("place") not in told and one.get("place")
    ]


def _about(one: dict[str, Any]) -> str:
    parts = [str(one.get("kind") or "unknown")]
    if one.get("samples") is not None:
        parts.append(f"{one['samples']:,} samples")
    if one.get("bytes") is not None:
        parts.append(format_size(one["bytes"]))
    licence = f" (licence: {one['licence']})" if one.get("licence") else ""
    return f"{', '.join(parts)} at {one.get('place')}{licence}"


def _finding(finding: Finding) -> str:
    return f"{finding.severity}: {finding.text}" + (f"; {finding.next}" if finding.next else "")
