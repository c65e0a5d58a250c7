"""Parallel coordinates: an upright axis for each thing, a line across them for each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cordee.core.draw.charts import framed, text_of

_WIDE, _HIGH, _TOP, _BOTTOM, _SIDE = 1120, 300, 34, 24, 60
# Told apart by colour-blind readers, on white and on black.
_BEST, _WORST = (0x1F, 0x5F, 0xA8), (0xD9, 0xC3, 0x8A)
_MOST_LINES = 400


class ParallelAxis(NamedTuple):
    """One axis: its name, and what stands along it, as places from 0 (below) to 1 and their texts."""

    name: str
    marks: Sequence[tuple[float, str]]


class ParallelLine(NamedTuple):
    """One line: its place on each axis (None: it has none there), how good it is from 0 (worst) to 1, what is said about it."""

    places: Sequence[float | None]
    good: float
    text: str


def parallel_coordinates(title: str, axes: Sequence[ParallelAxis], lines: Sequence[ParallelLine]) -> str:
    """Return the picture as SVG, the best lines on top; of very many the best ones and some of the others.

    Args:
        title: said to readers that do not see the picture.
    """
    if len(axes) < 2 or not lines:
        return f'<p class="none">{text_of(title)}: there is nothing to compare.</p>'
    step = (_WIDE - 2 * _SIDE) / (len(axes) - 1)
    xs = [_SIDE + step * index for index in range(len(axes))]
    order = sorted(lines, key=lambda line: line.good)
    if len(order) > _MOST_LINES:
        half = _MOST_LINES // 2
        rest = order[:-half]
        order = [*rest[:: -(-len(rest) // half)], *order[-half:]]
    body = [_line(line, xs) for line in order] + [_axis(axis, x, x == xs[-1]) for axis, x in zip(axes, xs, strict=True)]
    said = f"{len(lines)} lines over {', '.join(axis.name for axis in axes)}; the best are blue"
    return f'<div class="wide">{framed(title, said, _WIDE, _HIGH, "".join(body), "time")}</div>'


def _height(place: float) -> float:
    return _HIGH - _BOTTOM - place * (_HIGH - _TOP - _BOTTOM)


def _line(line: ParallelLine, xs: Sequence[float]) -> str:
    """Return one line; it has a gap where it has no place."""
    stretches: list[list[str]] = [[]]
    for x, place in zip(xs, line.places, strict=True):
        if place is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{x:.1f} {_height(place):.1f}")
    path = "".join("M" + "L".join(points) + ("h.1" if len(points) == 1 else "") for points in stretches if points)
    red, green, blue = (round(low + (high - low) * line.good) for low, high in zip(_WORST, _BEST, strict=True))
    look = f'stroke="rgb({red},{green},{blue})" stroke-width="{1 + line.good:.1f}" stroke-opacity="{0.35 + 0.55 * line.good:.2f}"'
    return f'<path d="{path}" fill="none" stroke-linecap="round" {look}><title>{text_of(line.text)}</title></path>'


def _axis(axis: ParallelAxis, x: float, last: bool) -> str:
    parts = [
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HIGH - _BOTTOM}" stroke-width="1.5"/>',
        f'<text x="{x:.1f}" y="{_TOP - 16}" class="tick" text-anchor="middle" font-weight="600">{text_of(axis.name)}</text>',
    ]
    for place, text in axis.marks:
        at, anchor = (x - 5, "end") if last else (x + 5, "start")
        parts.append(
            f'<text x="{at:.1f}" y="{_height(place) + 4:.1f}" class="tick" text-anchor="{anchor}">{text_of(text)}</text>'
        )
    return "".join(parts)
