"""Which charts a report has: phases, what ranks logged, what nodes and ranks used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cordee.core.draw.charts import MOST_LINES, ChartLine, Plot, Span, line_chart, timeline
from cordee.core.units import parse_utc
from cordee.faces.report.data import Curve, ReportData
from cordee.faces.report.usage import UsageSamples
from cordee.telemetry.store.phases import MEANING

if TYPE_CHECKING:
    import numpy as np

_FIRST = ("loss", "tokens_per_s", "samples_per_s", "throughput")
_RATES = ("_per_s", "_per_second", "throughput")
_MOST_CURVES = 16
_MOST_SPANS = 600
_PACE_POINTS = 120
_KINDS = (
    ("gpu_sm_ratio", "SMs at work", "ratio"),
    ("gpu_utilization_ratio", "GPU in use, coarse", "ratio"),
    ("gpu_memory_used_bytes", "GPU memory used", "bytes"),
    ("gpu_power_watts", "GPU power in watts", "number"),
    ("cpu_busy_ratio", "CPU busy", "ratio"),
    ("cpu_cores_ratio", "cores in use", "number"),
    ("memory_used_bytes", "memory used", "bytes"),
    ("memory_rss_bytes", "resident memory", "bytes"),
    ("network_receive_bytes_per_second", "network in", "rate"),
    ("network_transmit_bytes_per_second", "network out", "rate"),
    ("disk_read_bytes_per_second", "disk reads", "rate"),
    ("disk_write_bytes_per_second", "disk writes", "rate"),
    ("fabric_receive_bytes_per_second", "fabric in", "rate"),
    ("fabric_transmit_bytes_per_second", "fabric out", "rate"),
    ("pressure_io_ratio", "waiting for storage", "ratio"),
    ("node_power_watts", "power in watts", "number"),
    ("io_read_bytes_per_second", "read", "rate"),
    ("io_write_bytes_per_second", "written", "rate"),
)


OUTCOMES = {"segment": "ended with its segment", "node_lost": "lost a node"}


def phases_plot(data: ReportData) -> str:
    """Return the timeline of phases, attempts and checkpoints."""
    state = data.state
    now = state.ended_at or data.known_until
    phases = [Span(phase.name, phase.start, phase.end or max(now, phase.start), phase.name) for phase in state.phases]
    attempts = []
    for entry in state.attempts:
        outcome = entry.get("outcome", "running")
        end = max(entry.get("ended_at") or now, entry["started_at"])
        words = OUTCOMES.get(outcome, outcome)
        attempts.append(Span(f"attempt {words}", entry["started_at"], end, f"attempt {entry['attempt']} {words}"))
    seen = [(parse_utc(item["time"]), item["name"]) for item in data.checkpoints if item["time"]]
    checkpoints = [Span("checkpoint", moment, moment, f"checkpoint {name}") for moment, name in seen]
    segments = [
        Span(
            "segment", segment.started_at, max(segment.ended_at or now, segment.started_at), f"segment {segment.number}"
        )
        for segment in state.segment_states
        if segment.started_at is not None and len(state.segment_states) > 1
    ]
    rows = [("phases", phases), ("segments", segments), ("attempts", attempts), ("checkpoints", checkpoints)]
    return timeline("phases of the run", [(name, row[-_MOST_SPANS:]) for name, row in rows], list(MEANING))


def curve_plots(data: ReportData) -> list[Plot]:
    """Return what ranks logged: rates over time, the rest over steps."""
    names = [name for name in _FIRST if name in data.curves]
    names += sorted(set(data.curves) - set(names))
    plots = []
    for name in names[:_MOST_CURVES]:
        curve = data.curves[name]
        over_time = name.endswith(_RATES)
        plots.append(Plot(f"{name} over {'time' if over_time else 'steps'}", _curve_chart(data, curve, over_time)))
    if names and not any(name.endswith(_RATES) for name in names):
        pace = _pace(data, data.curves[names[0]])
        if pace is not None:
            svg = line_chart("steps per second over time", [pace], x_label="s", zero=True, marks=_restarts(data))
            plots.insert(1, Plot("steps per second over time, from when steps were logged", svg))
    return plots


def resource_plots(data: ReportData) -> list[Plot]:
    """Return what was used, per GPU, node and rank, in the order of the table of kinds; nothing of what was not measured."""
    plots = []
    for group, usage in data.usage.items():
        seconds = (usage.times - _origin(data, usage.times)).tolist()
        for metric, title, kind in _KINDS:
            if metric in usage.metrics and usage.samples[usage.metrics.index(metric)].any():
                name = f"{title}, per {group}"
                lines = _device_lines(usage, metric, seconds)
                svg = line_chart(name, lines, x_label="s", y_kind=kind, zero=True, marks=_restarts(data))
                plots.append(Plot(name, svg))
    return plots


def quantile_line(name: str, x: list[float], values: np.ndarray) -> ChartLine:
    """Return the median of values [time, device] with bands: least to greatest, and the middle 80 %; infinities are left out."""
    import numpy as np

    finite = np.isfinite(values)
    known = finite.any(axis=1)
    found = np.full((5, len(values)), np.nan)
    if known.any():
        told = np.where(finite, values, np.nan)[known].astype(np.float64)
        found[:, known] = np.nanquantile(told, (0.0, 0.1, 0.5, 0.9, 1.0), axis=1)
    least, low, middle, high, greatest = found.tolist()
    return ChartLine(name, x, middle, [(least, greatest), (low, high)])


def _device_lines(usage: UsageSamples, metric: str, seconds: list[float]) -> list[ChartLine]:
    values = usage.values[usage.metrics.index(metric)]
    if len(usage.devices) > MOST_LINES:
        name = f"median of {len(usage.devices)}; bands: the middle 80 %, and least to greatest"
        return [quantile_line(name, seconds, values)]
    return [
        ChartLine(f"{usage.group} {device}", seconds, values[:, at].astype(float).tolist())
        for at, device in enumerate(usage.devices)
    ]


def _curve_chart(data: ReportData, curve: Curve, over_time: bool) -> str:
    x, marks, label = curve.steps, _resumed(data), "steps"
    order = list(range(len(curve.mean)))
    if over_time:
        origin = _origin(data, curve.times)
        x, marks, label = [moment - origin for moment in curve.times], _restarts(data), "s"
        order.sort(key=x.__getitem__)
    columns = [[column[at] for at in order] for column in (x, curve.mean, curve.low, curve.high)]
    if over_time:
        columns = _broken(columns, [mark for mark, _ in marks])
    x, mean, low, high = columns
    spread = any(below != above for below, above in zip(low, high, strict=True) if math.isfinite(below + above))
    name = f"{curve.name}, mean over ranks" + ("; band: least to greatest" if spread else "")
    line = ChartLine(name, x, mean, [(low, high)] if spread else [])
    return line_chart(f"{curve.name} over {'time' if over_time else 'steps'}", [line], x_label=label, marks=marks)


def _pace(data: ReportData, curve: Curve) -> ChartLine | None:
    """Return steps per second, from how far apart the steps of a curve were logged; a gap where an attempt began."""
    if len(curve.steps) < 3:
        return None
    origin, stride = _origin(data, curve.times), max(1, len(curve.steps) // _PACE_POINTS)
    places = list(range(0, len(curve.steps), stride))
    begun = [entry["started_at"] for entry in data.state.attempts[1:]]
    x, y = [], []
    for before, after in itertools.pairwise(places):
        anew = any(curve.times[before] < moment <= curve.times[after] for moment in begun)
        took = curve.times[after] - curve.times[before]
        x.append((curve.times[after] + curve.times[before]) / 2 - origin)
        y.append((curve.steps[after] - curve.steps[before]) / took if took > 0 and not anew else math.nan)
    return ChartLine("steps per second", x, y) if any(map(math.isfinite, y)) else None


def _broken(columns: list[list[float]], marks: Sequence[float]) -> list[list[float]]:
    """Put a gap into columns (x first, ascending) wherever a mark lies between two points."""
    due = sorted(marks)
    broken: list[list[float]] = [[] for _ in columns]
    for row in zip(*columns, strict=True):
        while due and due[0] <= row[0]:
            mark = due.pop(0)
            if broken[0]:
                for column, value in zip(broken, (mark, *[math.nan] * (len(columns) - 1)), strict=True):
                    column.append(value)
        for column, value in zip(broken, row, strict=True):
            column.append(value)
    return broken


def _origin(data: ReportData, times: Sequence[float] | np.ndarray) -> float:
    if data.state.started_at is not None:
        return data.state.started_at
    return float(times[0]) if len(times) else 0.0


def _restarts(data: ReportData) -> list[tuple[float, str]]:
    origin = _origin(data, [])
    return [(entry["started_at"] - origin, f"attempt {entry['attempt']} began") for entry in data.state.attempts[1:]]


def _resumed(data: ReportData) -> list[tuple[float, str]]:
    marks = {}
    for entry in data.state.attempts[1:]:
        if entry.get("resume_step") is not None:
            marks[float(entry["resume_step"])] = f"attempt {entry['attempt']} went on from here"
    return sorted(marks.items())
