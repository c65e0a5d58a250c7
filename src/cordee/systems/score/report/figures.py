"""Pictures of a scoring as SVG: the score as an area, classes over time, heat maps of devices over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from cordee.core.draw.axes import nice_ticks, tick_text, time_unit
from cordee.core.draw.charts import Across, framed, text_of
from cordee.core.draw.images import LEVELS, MISSING, data_uri, encode_png, ramp, to_levels
from cordee.core.units import format_duration
from cordee.systems.score.report.classes import Course, colour_of, per_device
from cordee.systems.score.result import CLASSES

if TYPE_CHECKING:
    from cordee.systems.score.report.reduce import PlotLayout, Reduced
    from cordee.systems.score.result import ScoreShares, ScoreWindows

_WIDTH, _LABELS, _RIGHT, _FOOT = 1120, 150, 16, 30
MAP_ACROSS = Across(_WIDTH, _LABELS, _RIGHT)  # of charts that stand below a map
_SIDE = 200
_LONGEST_LABEL = 22
_HATCH = (
    '<defs><pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch-back" width="6" height="6"/><rect class="hatch-line" width="2" height="6"/></pattern></defs>'
)
PARTS = ("time", "breadth", "depth")


def losses(shares: ScoreShares) -> list[tuple[str, float]]:
    """Return the points of 100 by where they went: the score, then what depth, breadth and time cost; they add up to 100.

    Where depth is above 1 (few SMs filled the memory) it cost nothing, and breadth the less.
    """
    time, breadth, depth = shares.time or 0.0, shares.breadth or 0.0, shares.depth or 0.0
    score, at_work, in_use = 100 * time * breadth * depth, 100 * time * breadth, 100 * time
    by_depth = max(0.0, at_work - score)
    by_breadth = max(0.0, in_use - max(at_work, score))
    return [
        ("score", score),
        ("depth", by_depth),
        ("breadth", by_breadth),
        ("time", 100 - score - by_depth - by_breadth),
    ]


def score_area(shares: ScoreShares) -> str:
    """Return a square of all device time: the width in use, the height of units at work, filled as deep as they were used."""
    time, breadth, depth = shares.time or 0.0, shares.breadth or 0.0, shares.depth or 0.0
    left, top, side = 34, 8, _SIDE
    width, height = side * time, side * breadth
    filled = min(side, height * depth)
    body = (
        f'<rect class="area-time" x="{left}" y="{top}" width="{side}" height="{side}"/>'
        f'<rect class="area-breadth" x="{left}" y="{top}" width="{width:.1f}" height="{side}"/>'
        f'<rect class="area-depth" x="{left}" y="{top + side - height:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        f'<rect class="area-score" x="{left}" y="{top + side - filled:.1f}" width="{width:.1f}"'
        f' height="{filled:.1f}"/>'
        f'<rect class="outline" x="{left}" y="{top}" width="{side}" height="{side}"/>'
        f'<text class="tick" x="{left + side / 2}" y="{top + side + 18}" text-anchor="middle">time in use →</text>'
        f'<text class="tick" transform="translate({left - 10} {top + side / 2}) rotate(-90)" text-anchor="middle">'
        "breadth, filled by depth →</text>"
    )
    said = ", ".join(f"{name} {share:.0%}" for name, share in zip(PARTS, (time, breadth, depth), strict=True))
    return framed("the score as an area", f"the filled area is the score: {said}", 250, 240, body, "area")


def loss_bar(shares: ScoreShares) -> str:
    """Return one bar of 100 points: the score and what each part cost."""
    width, x, parts = 1000, 0.0, []
    for name, points in losses(shares):
        wide = width * points / 100
        parts.append(
            f'<rect class="area-{name}" x="{x:.1f}" y="0" width="{wide:.1f}" height="34">'
            f"<title>{name}: {points:.1f} points</title></rect>"
        )
        if wide > 64:
            parts.append(
                f'<text class="on-{name}" x="{x + wide / 2:.1f}" y="23" text-anchor="middle">{points:.0f}</text>'
            )
        x += wide
    parts.append(f'<rect class="outline" x="0" y="0" width="{width}" height="34"/>')
    said = ", ".join(f"{name} {points:.1f}" for name, points in losses(shares))
    return framed("where the 100 points went", said, width, 35, "".join(parts), "bar100")


def classes_chart(found: Course) -> str:
    """Return classes stacked over time, as shares of the devices."""
    height, top = 110, 6
    scale = (_WIDTH - _LABELS - _RIGHT) / max(1e-9, float(found.seconds[-1]))
    parts = [_HATCH.format(name="unknown-classes")]
    base = [0.0] * (len(found.seconds) - 1)
    for name, shares in found.shares.items():
        for start, stop, low, share in _stretches(base, shares.tolist()):
            x, x_end = (_LABELS + float(found.seconds[at]) * scale for at in (start, stop))
            y = top + height * (1 - low - share)
            where = f"{format_duration(float(found.seconds[start]))} to {format_duration(float(found.seconds[stop]))}"
            parts.append(
                f'<rect class="k-{name}" x="{x:.1f}" y="{y:.1f}" width="{x_end - x + 0.3:.1f}"'
                f' height="{height * share:.1f}"><title>{text_of(name)}, {where}: {share:.0%} of the devices</title></rect>'
            )
            if x_end - x > 8 * len(name) + 8 and height * share > 22:
                parts.append(
                    f'<text class="in k-text-{name}" x="{(x + x_end) / 2:.1f}"'
                    f' y="{y + height * share / 2 + 5:.1f}" text-anchor="middle">{text_of(name)}</text>'
                )
        base = [low + share for low, share in zip(base, shares.tolist(), strict=True)]
    for share in (0, 0.5, 1):
        y = top + height * (1 - share)
        parts.append(f'<text class="tick" x="{_LABELS - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    parts.append(_time_axis(float(found.seconds[-1]), top + height))
    said = ", ".join(f"{name} {float(shares.mean()):.0%}" for name, shares in found.shares.items())
    svg = framed("classes over time", said, _WIDTH, top + height + _FOOT, "".join(parts), "time")
    return f'<div class="wide" tabindex="0" role="region" aria-label="classes over time">{svg}</div>'


def classes_map(windows: ScoreWindows, plan: PlotLayout) -> str:
    """Return the classes of each device over time."""
    indices = per_device(windows, plan, 720)
    png = encode_png(indices, [(0, 0, 0), *(colour_of(name) for name in CLASSES)], transparent=0)
    seconds = len(windows.starts) * windows.length_s
    said = f"the class of each of {len(plan.order)} devices over {format_duration(seconds)}; the table above has the shares"
    return _map("classes of devices over time", said, png, plan, seconds)


def heat_map(reduced: Reduced, plan: PlotLayout, low: float, high: float, kind: str, title: str) -> str:
    """Return a metric over devices and time, with its scale; what was not measured is hatched."""
    png = encode_png(to_levels(reduced.cells, low, high), [(0, 0, 0), *ramp()], MISSING)
    seconds = float(plan.seconds[-1] - plan.seconds[0]) + plan.bin_s if len(plan.seconds) else 0.0
    rows = f"{plan.per_row} devices" if plan.per_row > 1 else "a device"
    said = f"a row is {rows}, a column {format_duration(plan.bin_s)}; from {tick_text(low, kind)} to {tick_text(high, kind)}"
    return _map(title, said, png, plan, seconds) + _scale(low, high, kind)


def row_marks(plan: PlotLayout, height: float, least: float) -> list[tuple[float, str]]:
    """Return (place in `height`, words) of the rows that are named: all, or the first of as many nodes as there is room for."""
    step = height / max(1, len(plan.labels))
    if step >= least:
        return [((at + 0.5) * step, label) for at, label in enumerate(plan.labels)]
    begins = [at for at, node in enumerate(plan.nodes) if at == 0 or node != plan.nodes[at - 1]]
    marks: list[tuple[float, str]] = []
    for at in begins:
        place = at * step + min(least, step * _length_of(plan.nodes, at)) / 2
        if not marks or place - marks[-1][0] >= least:
            marks.append((place, plan.nodes[at]))
    return marks


def map_height(plan: PlotLayout) -> float:
    """Return how high a map of this many rows is."""
    return float(min(420, max(24, 18 * len(plan.rows))))


def _length_of(nodes: Sequence[str], start: int) -> int:
    stop = start
    while stop < len(nodes) and nodes[stop] == nodes[start]:
        stop += 1
    return stop - start


def _map(title: str, said: str, png: bytes, plan: PlotLayout, seconds: float) -> str:
    height, top, name = map_height(plan), 6, "hatch"
    width = _WIDTH - _LABELS - _RIGHT
    body = [
        _HATCH.format(name=name),
        f'<rect fill="url(#{name})" x="{_LABELS}" y="{top}" width="{width}" height="{height}"/>',
        f'<image href="{data_uri(png)}" x="{_LABELS}" y="{top}" width="{width}" height="{height}"'
        ' preserveAspectRatio="none" style="image-rendering:pixelated"/>',
    ]
    for place, label in row_marks(plan, height, 15):
        words = text_of(label if len(label) <= _LONGEST_LABEL else "…" + label[1 - _LONGEST_LABEL :])
        body.append(f'<text class="tick" x="{_LABELS - 8}" y="{top + place + 4:.1f}" text-anchor="end">{words}</text>')
    body.append(_time_axis(seconds, top + height))
    svg = framed(title, said, _WIDTH, round(top + height + _FOOT), "".join(body), "time")
    return f'<div class="wide" tabindex="0" role="region" aria-label="{text_of(title)}">{svg}</div>'


def _scale(low: float, high: float, kind: str) -> str:
    import numpy as np

    png = data_uri(encode_png(np.arange(1, LEVELS + 1, dtype=np.uint8)[None, :], [(0, 0, 0), *ramp()]))
    return (
        f'<div class="legend"><span class="key">{escape(tick_text(low, kind))}</span>'
        f'<img class="ramp" alt="from dark to bright" src="{png}"><span class="key">{escape(tick_text(high, kind))}</span>'
        '<span class="key"><i class="hatched"></i>not measured</span></div>'
    )


def _time_axis(seconds: float, y: float) -> str:
    unit, name = time_unit(seconds)
    scale = (_WIDTH - _LABELS - _RIGHT) / max(1e-9, seconds)
    ticks = [tick for tick in nice_ticks(0, max(1e-9, seconds / unit), 6) if tick * unit <= seconds * 1.0001]
    parts = []
    for tick in ticks:
        x = _LABELS + tick * unit * scale
        anchor = "end" if x > _WIDTH - 60 else "middle"
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{y + 20}" text-anchor="{anchor}">{tick_text(tick)} {name}</text>'
        )
    return "".join(parts)


def _stretches(base: Sequence[float], shares: Sequence[float]) -> list[tuple[int, int, float, float]]:
    """Return (start, stop, low, share) of neighbouring columns in which a class has the same place; none where it has no share."""
    found: list[tuple[int, int, float, float]] = []
    for at, (low, share) in enumerate(zip(base, shares, strict=True)):
        if share <= 0:
            continue
        if found and found[-1][1] == at and abs(found[-1][2] - low) < 1e-9 and abs(found[-1][3] - share) < 1e-9:
            found[-1] = (found[-1][0], at + 1, low, share)
        else:
            found.append((at, at + 1, low, share))
    return found
