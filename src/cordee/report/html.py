"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import math
import shlex
import time
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from cordee.report.charts import Line, Span, line_chart, timeline
from cordee.report.data import Curve, ReportData
from cordee.units import format_duration, utc_text

_MOST_ROWS = 200
_FIRST = ("loss", "tokens_per_s", "samples_per_s", "throughput")
_KINDS = (
    ("cpu_busy_ratio", "CPU busy", "ratio"),
    ("cpu_cores_ratio", "cores in use", "number"),
    ("memory_used_bytes", "memory used", "bytes"),
    ("memory_rss_bytes", "resident memory", "bytes"),
    ("network_receive_bytes_per_second", "network in", "rate"),
    ("disk_write_bytes_per_second", "disk writes", "rate"),
    ("disk_read_bytes_per_second", "disk reads", "rate"),
    ("io_write_bytes_per_second", "written by the rank", "rate"),
)


def render_html(data: ReportData) -> str:
    """Return the page; everything that a program or a person wrote is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("cordee.report").joinpath("template.html.j2").read_text(encoding="utf-8")
    state = data.state
    took = state.ended_at - state.started_at if state.ended_at and state.started_at else None
    facts = [
        ("took", format_duration(took) if took is not None else "still going on"),
        ("submitted", utc_text(state.submitted_at)[:19].replace("T", " ") + " UTC" if state.submitted_at else "-"),
        ("nodes and ranks", f"{sum(node.role == 'active' for node in state.nodes)} nodes, {state.world_size} ranks"),
        ("step", _step(data)),
        ("restarts", f"{state.restarts} ({data.repeated_steps} steps done again)"),
        ("segments", str(state.segments)),
        ("newest checkpoint", state.checkpoint or "none"),
        ("command", shlex.join(data.step.get("tasks", {}).get("argv", []))),
        ("folder", str(data.folder.root)),
    ]
    return environment.from_string(template).render(
        data=data,
        state=state,
        facts=facts,
        timeline=Markup(timeline("phases of the run", _timeline_rows(data))),
        curves=[(curve.name, Markup(_curve_chart(curve))) for curve in _ordered(data)],
        resources=_resource_charts(data),
        nodes=state.nodes[:_MOST_ROWS],
        ranks=state.ranks[:_MOST_ROWS],
        hidden=max(0, len(state.nodes) - _MOST_ROWS) + max(0, len(state.ranks) - _MOST_ROWS),
        duration=format_duration,
        now=utc_text(),
    )


def _step(data: ReportData) -> str:
    if data.state.step is None:
        return "not logged"
    return f"{data.state.step} of {data.state.total}" if data.state.total else str(data.state.step)


def _timeline_rows(data: ReportData) -> list[tuple[str, list[Span]]]:
    now = data.state.ended_at or time.time()
    phases = [Span(phase.name, phase.start, phase.end or now, phase.name) for phase in data.state.phases]
    attempts = []
    for entry in data.state.attempts:
        outcome = entry.get("outcome", "running")
        text = f"attempt {entry['attempt']} {outcome}"
        attempts.append(Span(f"attempt {outcome}", entry["started_at"], entry.get("ended_at") or now, text))
    return [("phases", phases), ("attempts", attempts)]


def _ordered(data: ReportData) -> list[Curve]:
    names = [name for name in _FIRST if name in data.curves]
    return [data.curves[name] for name in names + sorted(set(data.curves) - set(names))][:12]


def _curve_chart(curve: Curve) -> str:
    many = any(low != high for low, high in zip(curve.low, curve.high, strict=True) if math.isfinite(low + high))
    band = (curve.low, curve.high) if many else (None, None)
    line = Line(f"{curve.name}, mean over ranks", curve.steps, curve.mean, *band)
    return line_chart(f"{curve.name} over steps", [line], x_label="steps")


def _resource_charts(data: ReportData) -> list[tuple[str, Markup]]:
    charts = []
    for group, grid in data.grids.items():
        seconds = (grid.times - (data.state.started_at or (grid.times[0] if len(grid.times) else 0.0))).tolist()
        for metric, title, kind in _KINDS:
            if metric in grid.metrics:
                values = grid.values[grid.metrics.index(metric)]
                lines = [
                    Line(f"{group} {device}", seconds, values[:, index].astype(float).tolist())
                    for index, device in enumerate(grid.devices)
                ]
                name = f"{title}, per {group}"
                charts.append((name, Markup(line_chart(name, lines, x_label="s", y_kind=kind, zero=True))))
    return charts
