"""A scoring as a PDF of a few A4 pages, fit to be put into a project proposal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cordee.core.draw.charts import ChartLine
from cordee.core.units import utc_text
from cordee.systems.score.compare import compare
from cordee.systems.score.report import classes, figures, words
from cordee.systems.score.report.collect import MAIN, Collected, MetricGroup, is_constant, kind_of, range_of, title_of
from cordee.systems.score.report.compared import side_by_side
from cordee.systems.score.report.paper import Paper
from cordee.systems.score.report.pen import PaperPlace
from cordee.systems.score.report.together import panels

if TYPE_CHECKING:
    from cordee.systems.score.report.reduce import Reduced

_MOST_JOBS = 8
_MOST_TABLE_ROWS = 24
_MOST_REMARKS = 6
_MAPS, _BANDS, _PANELS = 4, 4, 4


def render_pdf(collected: Sequence[Collected]) -> bytes:
    """Return the pages: for several jobs what moved first, then two to four pages for each of the first eight."""
    paper = Paper(
        f"Rendered {utc_text(time.time())[:16].replace('T', ' ')} UTC by Cordée. Hardware saturation, not speed."
    )
    if len(collected) > 1:
        _side_page(paper, collected)
    for found in collected[:_MOST_JOBS]:
        _first_page(paper, found)
        if found.measured and found.saturation.shares.score is not None:
            _pictures(paper, found)
            _closing(paper, found)
    return paper.finish()


def _first_page(paper: Paper, found: Collected) -> None:
    result = found.saturation
    paper.page(result.job.name)
    paper.facts(words.facts(found))
    paper.heading("Score")
    paper.text(words.headline(result), size=10)
    if result.shares.score is None:
        paper.bullets([f"{name}: {reason}" for name, reason in found.missing[:12]])
        paper.bullets(result.remarks[:_MOST_REMARKS])
        return
    paper.score(result)
    beside = [f"{name} {value}" for name, value, _ in words.beside(result) if value != words.NOT_MEASURED]
    paper.text(" · ".join(beside), size=8.5)
    if result.confidence_reasons:
        paper.text(f"What lowers confidence: {'; '.join(result.confidence_reasons)}.", size=8)
    course = classes.course(result)
    if course is not None:
        paper.heading("What it did over time")
        paper.classes(course)
    if result.diagnosis or result.flags:
        paper.heading("Why, and what to change")
    for cause in result.diagnosis[:2]:
        gain = f"; removing this could make the job up to {cause.gain:.2f}x faster" if cause.gain else ""
        paper.text(f"{cause.title} ({cause.name}, {words.percent(cause.share)} of the measured time{gain})", bold=True)
        paper.bullets([*cause.evidence[:2], *(f"To change: {text}" for text in cause.advice[:3])])
    paper.bullets([flag.text for flag in result.flags[:4]])
    paper.bullets(result.remarks[:_MOST_REMARKS])


def _pictures(paper: Paper, found: Collected) -> None:
    """Draw the aggregated view and the bands and heat maps of the main metrics."""
    paper.page(found.saturation.job.name)
    shown = panels(found)[:_PANELS]
    if shown:
        paper.heading("Compute, memory, network together")
        paper.pairs([partial(paper.chart, title=title, lines=lines, kind=kind) for title, lines, kind in shown])
    main = _main(found)
    if main:
        paper.heading("Bands over devices: median, middle 80 %, least to greatest")
        paper.pairs([_bands(paper, group, metric) for group, metric in main[:_BANDS]])
        paper.heading("Devices over time", 60)
        for group, metric in main[:_MAPS]:
            low, high = range_of(metric)
            png = figures.heat_png(metric, low, high, missing=(225, 228, 232))
            paper.heat(title_of(metric), png, group.plan, (low, high), kind_of(metric))


def _bands(paper: Paper, group: MetricGroup, metric: Reduced) -> Callable[[PaperPlace], None]:
    """Return what draws a metric's bands into a place."""
    least, below, middle, above, most = metric.bands.astype(float).tolist()
    bands = [(least, most), (below, above)] if len(group.keys) > 1 else []
    line = ChartLine("", group.plan.seconds.tolist(), middle, bands)
    return partial(paper.chart, title=title_of(metric), lines=[line], kind=kind_of(metric))


def _closing(paper: Paper, found: Collected) -> None:
    result = found.saturation
    if result.kind == "gpu":
        tables = [words.usage_table(found, _MOST_TABLE_ROWS)]
    else:
        tables = words.tables(found, _MOST_TABLE_ROWS)[:1]
    for table in tables:
        paper.heading(f"{table.title}, lowest score first", 40)
        paper.table(table.head, table.rows)
        if table.rest:
            paper.text(f"{table.rest}.", size=8)
    paper.heading("How to read it")
    reading = words.READING if result.kind == "gpu" else (*words.CPU_READING, *words.READING[4:])
    for name, text in reading:
        paper.text(f"{name}: {text}", size=8)
    paper.heading("What it is not")
    paper.bullets(words.NOT_THIS, size=8)
    paper.heading("Where the caps come from")
    for cap in result.caps[:4]:
        paper.text(
            f"{cap.model or 'unknown model'}: {cap.origin}{'' if cap.measured else ' (not measured here)'}", size=8
        )
    if found.missing:
        names = ", ".join(name for name, _ in found.missing)
        paper.text(f"Not measured, with the reasons in score.html: {names}.", size=7.5)


def _side_page(paper: Paper, collected: Sequence[Collected]) -> None:
    results = [found.saturation for found in collected]
    side = side_by_side(results, compare(results))
    paper.page("Side by side")
    paper.table(("", *side.names[:_MOST_JOBS]), [(name, *values[:_MOST_JOBS]) for name, values in side.rows])
    for statement in side.statements[: _MOST_JOBS - 1]:
        paper.heading(statement.title)
        paper.bullets(statement.lines)
    if len(collected) > _MOST_JOBS:
        paper.text(f"{len(collected) - _MOST_JOBS} more jobs are in score.html.", size=8)


def _main(found: Collected) -> list[tuple[MetricGroup, Reduced]]:
    """Return the metrics that are drawn: the main ones of GPUs, else the first of nodes and ranks."""
    gpu = found.groups.get("gpu")
    if gpu is not None:
        return [(gpu, metric) for name, metric in gpu.metrics.items() if name in MAIN]
    groups = [group for name in ("cores", "rank", "node") if (group := found.groups.get(name)) is not None]
    shown = [(group, metric) for group in groups for name, metric in group.metrics.items() if not is_constant(name)]
    return shown[: max(_MAPS, _BANDS)]
