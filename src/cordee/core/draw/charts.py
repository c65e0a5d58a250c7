"""Small SVG charts with axes, gaps where nothing was measured, and colours that colour-blind readers can tell apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from cordee.core.draw.axes import MOST_POINTS, extremes, nice_ticks, reduced, tick_text, time_unit
from cordee.core.draw.clean import one_line
from cordee.core.units import format_duration

HEIGHT = 220
TOP, BOTTOM = 12, 32
MOST_LINES = 12
COLOURS = 8
_MOST_MARKS = 40
_TIMELINE_WIDTH, _TIMELINE_RIGHT, _ROW, _LABELS = 1120, 14, 28, 100

Band = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Across:
    """How wide a chart is, and how much of it is left of its axis and right of its end."""

    width: int = 560
    left: int = 74
    right: int = 14


NARROW = Across()


class Plot(NamedTuple):
    """A chart and what stands above it; `svg` is safe to put into a page."""

    name: str
    svg: str


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart, with bands (lower and upper edge) around it, widest first. NaN makes a gap."""

    name: str
    x: list[float]
    y: list[float]
    bands: list[Band] = field(default_factory=list)


@dataclass(frozen=True)
class Span:
    """A stretch of a timeline: what it is (its colour), when, and what is said about it."""

    name: str
    start: float
    end: float
    text: str


def line_chart(
    title: str,
    lines: Sequence[ChartLine],
    *,
    x_label: str,
    y_kind: str = "number",
    zero: bool = False,
    marks: Sequence[tuple[float, str]] = (),
    shades: Sequence[tuple[float, float, str]] = (),
    x_end: float | None = None,
    across: Across = NARROW,
) -> str:
    """Return a chart as SVG with a legend; what it shows is in its description too.

    Args:
        title: said to readers that do not see the picture.
        lines: at most twelve (`quantile_line` makes one of more).
        x_label: unit of x; `s` is shown in minutes, hours or days where that is shorter.
        y_kind: number, bytes, rate (bytes per second) or ratio.
        zero: let the y axis begin at zero.
        marks: (x, text) of upright lines such as restarts.
        shades: (from x, to x, text) of what went on behind the lines, such as checkpoints.
        x_end: where the x axis ends; None: at the last point.
    """
    lines = [_thinned(line) for line in lines[:MOST_LINES]]
    xs = [value for line in lines for value in line.x if math.isfinite(value)]
    edges = [edge for line in lines for edge in (line.y, *(part for band in line.bands for part in band))]
    ys = [value for edge in edges for value in edge if math.isfinite(value)]
    if not xs or not ys:
        return f'<p class="none">{text_of(title)}: nothing was measured.</p>'
    y_ticks = nice_ticks(min(0.0, *ys) if zero else min(ys), max(ys))
    last = max(xs) if x_end is None else x_end
    frame = _Frame(min(xs), last if last > min(xs) else min(xs) + 1, y_ticks[0], y_ticks[-1], across)
    body = [_grid(frame, y_ticks, y_kind, x_label), *_shades(frame, shades)]
    for x, text in [mark for mark in marks if frame.x_low < mark[0] < frame.x_high][-_MOST_MARKS:]:
        place = frame.at(x, frame.y_low)[0]
        body.append(
            f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
            f"<title>{text_of(text)}</title></line>"
        )
    for number, line in enumerate(lines):
        for band in line.bands:
            body.append(f'<path class="band c{number % COLOURS}" d="{_area(frame, line.x, *band)}"/>')
        body.append(
            f'<path class="line {_look(number)}" d="{_path(frame, line.x, line.y)}"><title>{text_of(line.name)}</title></path>'
        )
    said = f"from {tick_text(min(ys), y_kind)} to {tick_text(max(ys), y_kind)}; " + ", ".join(
        line.name for line in lines
    )
    svg = framed(
        title, said, across.width, HEIGHT, "".join(body), "chart" if across.width < _TIMELINE_WIDTH else "time"
    )
    return svg + (
        _legend([(line.name, _look(number)) for number, line in enumerate(lines)])
        if len(lines) > 1 or any(line.bands for line in lines)
        else ""
    )


def timeline(title: str, rows: Sequence[tuple[str, Sequence[Span]]], colours: Sequence[str] = ()) -> str:
    """Return a timeline as SVG: one row of coloured stretches per name, in seconds from the first.

    Args:
        colours: names of spans whose colours stay the same in every report; others follow.
    """
    spans = [span for _, row in rows for span in row]
    if not spans:
        return f'<p class="none">{text_of(title)}: nothing has happened yet.</p>'
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    last = last if last > first else first + 1
    names = list(dict.fromkeys([*colours, *(span.name for span in spans)]))
    shown = [name for name in names if any(span.name == name for span in spans)]
    rows = [row for row in rows if row[1]]
    height = _ROW * len(rows) + BOTTOM
    scale = (_TIMELINE_WIDTH - _LABELS - _TIMELINE_RIGHT) / (last - first)
    parts = []
    for index, (label, row) in enumerate(rows):
        top = _ROW * index + 4
        parts.append(f'<text x="{_LABELS - 8}" y="{top + 15}" class="tick" text-anchor="end">{text_of(label)}</text>')
        for span in row:
            x, width = _LABELS + (span.start - first) * scale, max(1.5, (span.end - span.start) * scale - 0.5)
            tip = f"{span.text}: {format_duration(span.end - span.start)}" if span.end > span.start else span.text
            parts.append(
                f'<rect class="{_look(names.index(span.name))}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="20" rx="2">'
                f"<title>{text_of(tip)}</title></rect>"
            )
    unit, unit_name = time_unit(last - first)
    for tick in nice_ticks(0, (last - first) / unit, 6):
        if tick * unit <= last - first:
            x = _LABELS + tick * unit * scale
            anchor = "end" if x > _TIMELINE_WIDTH - 40 else "middle"
            label = f"{tick_text(tick)} {unit_name}"
            parts.append(f'<text x="{x:.1f}" y="{height - 10}" class="tick" text-anchor="{anchor}">{label}</text>')
    said = f"{len(spans)} stretches over {format_duration(last - first)}; the table below has the sums"
    svg = framed(title, said, _TIMELINE_WIDTH, height, "".join(parts), "time")
    return f'<div class="wide">{svg}</div>' + _legend([(name, _look(names.index(name))) for name in shown])


@dataclass(frozen=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    across: Across

    def at(self, x: float, y: float) -> tuple[float, float]:
        along = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_low) / (self.y_high - self.y_low)
        width = self.across.width - self.across.left - self.across.right
        return self.across.left + along * width, HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def framed(title: str, said: str, width: int, height: int, body: str, kind: str = "chart") -> str:
    """Return a picture as SVG with its title and, for readers that do not see it, what it says."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{text_of(title)}">'
        f"<title>{text_of(title)}</title><desc>{text_of(said)}</desc>{body}</svg>"
    )


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    keys = "".join(f'<span class="key"><i class="{look}"></i>{text_of(name)}</span>' for name, look in entries)
    return f'<div class="legend">{keys}</div>'


def _look(number: int) -> str:
    """Return the classes of the nth thing: beyond the eight colours they come again, dashed."""
    return f"c{number % COLOURS}" + (" again" if number >= COLOURS else "")


def text_of(value: str) -> str:
    """Return what a program or a person wrote, fit for the inside of an SVG."""
    return escape(one_line(value, 200))


def _grid(frame: _Frame, y_ticks: list[float], y_kind: str, x_label: str) -> str:
    parts, across = [], frame.across
    for tick in y_ticks:
        y = frame.at(frame.x_low, tick)[1]
        parts.append(
            f'<line class="grid" x1="{across.left}" x2="{across.width - across.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{across.left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(tick_text(tick, y_kind))}</text>'
        )
    unit, unit_name = time_unit(frame.x_high - frame.x_low) if x_label == "s" else (1.0, x_label)
    ticks = [tick * unit for tick in nice_ticks(frame.x_low / unit, frame.x_high / unit, 5)]
    inside = [tick for tick in ticks if frame.x_low <= tick <= frame.x_high]
    for tick in inside:
        x = frame.at(tick, frame.y_low)[0]
        label = f"{tick_text(tick / unit)} {unit_name}" if tick == inside[-1] else tick_text(tick / unit)
        anchor = "end" if tick == inside[-1] and x > across.width - 70 else "middle"
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{text_of(label)}</text>')
    return "".join(parts)


def _shades(frame: _Frame, shades: Sequence[tuple[float, float, str]]) -> list[str]:
    """Return upright stretches, none too narrow to be seen."""
    parts = []
    for begin, end, text in [shade for shade in shades if shade[1] >= frame.x_low and shade[0] <= frame.x_high]:
        left, right = (frame.at(min(max(x, frame.x_low), frame.x_high), 0.0)[0] for x in (begin, end))
        parts.append(
            f'<rect class="shade" x="{left:.1f}" width="{max(2.0, right - left):.1f}" y="{TOP}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{text_of(text)}</title></rect>"
        )
    return parts


def _path(frame: _Frame, xs: list[float], ys: list[float]) -> str:
    """Return a path that begins anew after each gap; a number alone between gaps is a dot."""
    stretches: list[list[str]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(y):
            across, down = frame.at(x, y)
            stretches[-1].append(f"{across:.1f} {down:.1f}")
        elif stretches[-1]:
            stretches.append([])
    drawn = ["M" + "L".join(points) + ("h.1" if len(points) == 1 else "") for points in stretches if points]
    return "".join(drawn)


def _area(frame: _Frame, xs: list[float], low: list[float], high: list[float]) -> str:
    """Return a closed path between two edges, one for each stretch without a gap."""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for x, below, above in zip(xs, low, high, strict=True):
        if math.isfinite(below + above):
            stretches[-1].append((x, below, above))
        elif stretches[-1]:
            stretches.append([])
    parts = []
    for known in stretches:
        points = [frame.at(x, above) for x, _, above in known] + [frame.at(x, below) for x, below, _ in reversed(known)]
        parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z" if points else "")
    return "".join(parts)


def _thinned(line: ChartLine) -> ChartLine:
    """Return a line of at most 500 points that still reaches its extremes."""
    if len(line.x) <= MOST_POINTS:
        return line
    if not line.bands:
        return ChartLine(line.name, *extremes(line.x, line.y))
    bands = [(reduced(low, "min"), reduced(high, "max")) for low, high in line.bands]
    return ChartLine(line.name, reduced(line.x, "mean"), reduced(line.y, "mean"), bands)
