"""Small SVG charts with axes, gaps where nothing was measured, and colours that colour-blind readers can tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from cordee.units import format_size

WIDTH, HEIGHT = 560, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 30
MOST_POINTS = 400
MOST_LINES = 8
_TIMELINE_WIDTH = 1120


@dataclass(frozen=True)
class Line:
    """One line of a chart; `low` and `high` draw a band. NaN makes a gap."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True)
class Span:
    """A stretch of a timeline."""

    name: str
    start: float
    end: float
    text: str


def line_chart(title: str, lines: list[Line], *, x_label: str, y_kind: str = "number", zero: bool = False) -> str:
    """Return a chart as SVG.

    Args:
        title: said to readers that do not see the picture.
        lines: beyond eight they become one band from the least to the greatest, with the median.
        y_kind: number, bytes, rate (bytes per second) or ratio.
        zero: let the y axis begin at zero.
    """
    lines = [_thinned(line) for line in (lines if len(lines) <= MOST_LINES else [_band(lines)])]
    xs = [value for line in lines for value in line.x if math.isfinite(value)]
    ys = [
        value
        for line in lines
        for part in (line.y, line.low or [], line.high or [])
        for value in part
        if math.isfinite(value)
    ]
    if not xs or not ys:
        return f'<p class="none">{escape(title)}: nothing was measured.</p>'
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = (0.0 if zero else min(ys)), max(ys)
    y_ticks = nice_ticks(y_low, y_high)
    y_low, y_high = min(y_low, y_ticks[0]), max(y_high, y_ticks[-1])
    frame = _Frame(x_low, x_high if x_high > x_low else x_low + 1, y_low, y_high if y_high > y_low else y_low + 1)
    body = [_grid(frame, nice_ticks(x_low, frame.x_high), y_ticks, y_kind, x_label)]
    for number, line in enumerate(lines):
        if line.low and line.high:
            body.append(f'<path class="band c{number % 8}" d="{_area(frame, line)}"/>')
        body.append(
            f'<path class="line c{number % 8}" d="{_path(frame, line.x, line.y)}"><title>{escape(line.name)}</title></path>'
        )
    legend = "".join(
        f'<span class="key"><i class="c{number % 8}"></i>{escape(line.name)}</span>'
        for number, line in enumerate(lines)
    )
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(body)}</svg>'
    return svg + (f'<div class="legend">{legend}</div>' if len(lines) > 1 else "")


def timeline(title: str, rows: list[tuple[str, list[Span]]]) -> str:
    """Return a timeline as SVG: one row of coloured stretches per name, in seconds from the first."""
    spans = [span for _, row in rows for span in row]
    if not spans:
        return f'<p class="none">{escape(title)}: nothing has happened yet.</p>'
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    last = last if last > first else first + 1
    names = list(dict.fromkeys(span.name for span in spans))
    height = 26 * len(rows) + BOTTOM
    scale = (_TIMELINE_WIDTH - LEFT - RIGHT) / (last - first)
    parts = []
    for index, (label, row) in enumerate(rows):
        top = 26 * index + 4
        parts.append(f'<text x="{LEFT - 6}" y="{top + 14}" class="tick" text-anchor="end">{escape(label)}</text>')
        for span in row:
            x, width = LEFT + (span.start - first) * scale, max(1.0, (span.end - span.start) * scale)
            tip = f"{span.text}: {span.end - span.start:.1f} s"
            parts.append(
                f'<rect class="c{names.index(span.name) % 8}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="18" rx="2"><title>{escape(tip)}</title></rect>'
            )
    for tick in nice_ticks(0, last - first):
        if tick <= last - first:
            parts.append(
                f'<text x="{LEFT + tick * scale:.1f}" y="{height - 12}" class="tick" text-anchor="middle">{_number(tick)} s</text>'
            )
    legend = "".join(
        f'<span class="key"><i class="c{index % 8}"></i>{escape(name)}</span>' for index, name in enumerate(names)
    )
    svg = f'<svg viewBox="0 0 {_TIMELINE_WIDTH} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    return svg + f'<div class="legend">{legend}</div>'


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers that cover [low, high], about `count` steps apart."""
    if not high > low:
        return [low, low + 1]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if raw <= factor * power * (1 + 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_low) / (self.y_high - self.y_low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def _grid(frame: _Frame, x_ticks: list[float], y_ticks: list[float], y_kind: str, x_label: str) -> str:
    parts = []
    for tick in y_ticks:
        _, y = frame.at(frame.x_low, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_formatted(tick, y_kind)}</text>'
        )
    inside = [tick for tick in x_ticks if frame.x_low <= tick <= frame.x_high]
    for tick in inside:
        x, _ = frame.at(tick, frame.y_low)
        label = f"{_number(tick)} {x_label}" if tick == inside[-1] else _number(tick)
        anchor = "end" if tick == inside[-1] and x > WIDTH - 60 else "middle"
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{escape(label)}</text>')
    return "".join(parts)


def _path(frame: _Frame, xs: list[float], ys: list[float]) -> str:
    parts, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if not math.isfinite(y):
            pen = "M"
            continue
        across, down = frame.at(x, y)
        parts.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L"
    return "".join(parts)


def _area(frame: _Frame, line: Line) -> str:
    assert line.low is not None
    assert line.high is not None
    known = [
        (x, low, high) for x, low, high in zip(line.x, line.low, line.high, strict=True) if math.isfinite(low + high)
    ]
    points = [frame.at(x, high) for x, _, high in known] + [frame.at(x, low) for x, low, _ in reversed(known)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z" if points else ""


def _thinned(line: Line) -> Line:
    """Average neighbours until a line has few enough points; a stretch without a number stays a gap."""
    size = math.ceil(len(line.x) / MOST_POINTS)
    if size <= 1:
        return line

    def mean(values: list[float]) -> list[float]:
        found = []
        for start in range(0, len(values), size):
            known = [value for value in values[start : start + size] if math.isfinite(value)]
            found.append(sum(known) / len(known) if known else math.nan)
        return found

    low = mean(line.low) if line.low else None
    high = mean(line.high) if line.high else None
    return Line(line.name, mean(line.x), mean(line.y), low, high)


def _band(lines: list[Line]) -> Line:
    x = max((line.x for line in lines), key=len)
    middle, low, high = [], [], []
    for index in range(len(x)):
        known = sorted(line.y[index] for line in lines if index < len(line.y) and math.isfinite(line.y[index]))
        middle.append(known[len(known) // 2] if known else math.nan)
        low.append(known[0] if known else math.nan)
        high.append(known[-1] if known else math.nan)
    return Line(f"median of {len(lines)}, least to greatest", x, middle, low, high)


def _formatted(value: float, kind: str) -> str:
    if kind in ("bytes", "rate"):
        return format_size(value) + ("/s" if kind == "rate" else "")
    return f"{value:.0%}" if kind == "ratio" else _number(value)


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.2g}"
    return f"{value:.6g}"
