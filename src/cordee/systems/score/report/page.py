"""A scoring, or several side by side, as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from cordee.core.draw.charts import COLOURS, ChartLine, line_chart
from cordee.core.draw.pages import page_environment
from cordee.core.units import format_duration, utc_text
from cordee.systems.score.compare import compare
from cordee.systems.score.report import classes, figures, words
from cordee.systems.score.report.collect import (
    MAIN,
    SECTIONS,
    Collected,
    MetricGroup,
    is_constant,
    kind_of,
    range_of,
    section_of,
    title_of,
)
from cordee.systems.score.report.compared import side_by_side
from cordee.systems.score.report.reduce import Reduced
from cordee.systems.score.report.together import together
from cordee.systems.score.result import UNKNOWN, Caps, Diagnosis, Saturation

_MOST_FLAGS = 40
_MOST_REMARKS = 30
_COST = {
    "score": "SMs at work, as close to the roof as they came",
    "depth": "SMs held work but waited: for memory, for each other, for links",
    "breadth": "SMs had no work while the device was in use",
    "time": "nothing ran on the device",
}
_CPU_COST = {
    "score": "cores at work, as close to the roof as they came",
    "depth": "cores worked at fewer instructions per cycle than they can",
    "breadth": "cores had no work while others did",
    "time": "no core worked",
}


def render_page(collected: Sequence[Collected]) -> str:
    """Return the page; everything that a program or a person wrote is escaped, without control characters, and cut."""
    results = [found.saturation for found in collected]
    first = results[0]
    reading = words.READING if first.kind == "gpu" else (*words.CPU_READING, *words.READING[4:])
    return (
        page_environment("cordee.systems.score.report")
        .get_template("page.html.j2")
        .render(
            title=" · ".join(result.job.name for result in results[:4]),
            jobs=[_job(found) for found in collected],
            side=side_by_side(results, compare(results)) if len(results) > 1 else None,
            what="saturation of GPUs" if first.kind == "gpu" else "saturation of CPU cores (there was no GPU)",
            reading=reading,
            not_this=words.NOT_THIS,
            colours=range(COLOURS),
            classes=[name for name in classes.COLOURS if name != UNKNOWN],
            now=utc_text(time.time())[:19].replace("T", " ") + " UTC",
        )
    )


def _job(found: Collected) -> dict[str, Any]:
    result = found.saturation
    scored = result.shares.score is not None
    causes = [_cause(cause) for cause in result.diagnosis]
    view: dict[str, Any] = {
        "name": result.job.name,
        "headline": words.headline(result),
        "shares": _shares(result) if scored else None,
        "causes": causes,
        "flags": result.flags[:_MOST_FLAGS],
        "more_flags": max(0, len(result.flags) - _MOST_FLAGS),
        "facts": words.facts(found),
        "beside": words.beside(result),
        "remarks": result.remarks[:_MOST_REMARKS],
        "together": [(plot._replace(svg=Markup(plot.svg))) for plot in together(found)],
        "tables": _tables(found) if scored else [],
        "caps": [(cap.model or "unknown model", _full(cap), cap.origin) for cap in result.caps],
        "missing": found.missing,
        **_classes(found),
        **_metrics(found),
    }
    if scored:
        cost = _COST if result.kind == "gpu" else _CPU_COST
        view["area"] = Markup(figures.score_area(result.shares))
        view["bar"] = Markup(figures.loss_bar(result.shares))
        view["losses"] = [(name, f"{points:.1f}", cost[name]) for name, points in figures.losses(result.shares)]
    there = ("score", "diagnosis", "classes", "beside", "together", "metrics", "parts")
    known = (scored, causes, view["classes"], True, view["together"], view["main"], view["tables"])
    view["contents"] = [name for name, shown in zip(there, known, strict=True) if shown]
    return view


def _shares(result: Saturation) -> dict[str, str]:
    shares = result.shares
    parts = {name: words.factor(result, name) for name in figures.PARTS}
    return {"score": words.points(shares.score), **parts}


def _cause(cause: Diagnosis) -> dict[str, Any]:
    gain = "" if cause.gain is None else f"removing this could make the job up to {cause.gain:.2f}x faster"
    return {
        "name": cause.name,
        "look": cause.name,
        "title": cause.title,
        "share": words.percent(cause.share),
        "evidence": cause.evidence,
        "advice": cause.advice,
        "gain": gain,
    }


def _classes(found: Collected) -> dict[str, Any]:
    course = classes.course(found.saturation)
    if course is None:
        return {"classes": None}
    windows = found.saturation.windows
    many = windows.classes.shape[1] == len(found.trace.devices) > 1
    shown = [(name, name, f"{float(shares.mean()):.0%}") for name, shares in course.shares.items()]
    return {
        "classes": Markup(figures.classes_chart(course)),
        "device_classes": Markup(figures.classes_map(windows, found.plan) if many else ""),
        "class_key": shown,
    }


def _metrics(found: Collected) -> dict[str, Any]:
    """Return a heat map and bands of each metric: the main ones, and the others by section."""
    gpu = found.groups.get("gpu") or found.groups.get("cores")
    sections: list[tuple[str, list[dict[str, Any]]]] = []
    main: list[dict[str, Any]] = []
    if gpu is not None:
        main = [_figure(gpu, gpu.metrics[name]) for name in gpu.metrics if name in MAIN]
        others = [name for name in gpu.metrics if name not in MAIN and not is_constant(name)]
        for title, _ in SECTIONS:
            of_section = [_figure(gpu, gpu.metrics[name]) for name in others if section_of(name) == title]
            if of_section:
                sections.append((f"{'GPUs' if gpu.name == 'gpu' else 'cores'}, {title}", of_section))
    for name, title in (("node", "nodes"), ("rank", "ranks")):
        group = found.groups.get(name)
        drawn = [_figure(group, metric) for at, metric in group.metrics.items() if not is_constant(at)] if group else []
        if drawn:
            sections.append((title, drawn))
    return {"main": main, "more": sections, "rows": _rows(gpu)}


def _figure(group: MetricGroup, metric: Reduced) -> dict[str, Any]:
    low, high = range_of(metric)
    title, kind = title_of(metric), kind_of(metric)
    least, below, middle, above, most = metric.bands.astype(float).tolist()
    x = group.plan.seconds.tolist()
    bands = [(least, most), (below, above)] if len(group.keys) > 1 else []
    line = ChartLine(title if not bands else "median", x, middle, bands)
    chart = line_chart(
        f"{title}: bands",
        [line],
        x_label="s",
        y_kind=kind,
        zero=metric.unit not in ("GHz", "°C"),
        x_end=x[-1] + group.plan.bin_s if x else None,
        across=figures.MAP_ACROSS,
    )
    heat = figures.heat_map(metric, group.plan, low, high, kind, title) if len(x) else ""
    return {"title": title, "heat": Markup(heat), "bands": Markup(f'<div class="wide">{chart}</div>')}


def _rows(group: MetricGroup | None) -> str:
    if group is None:
        return ""
    plan = group.plan
    if plan.per_row == 1:
        return f"A column is {format_duration(plan.bin_s)}."
    return f"A row is the mean of {plan.per_row} neighbours, a column {format_duration(plan.bin_s)}."


def _tables(found: Collected) -> list[words.WorstTable]:
    made = words.tables(found)
    return [*made, words.usage_table(found)] if found.saturation.kind == "gpu" else made


def _full(cap: Caps) -> str:
    known = [f"{name} {value:.0%}" for name, value in cap.pipe.items()] + [f"memory {cap.dram:.0%}"]
    return ", ".join(known) + ("" if cap.measured else " (not measured here)")
