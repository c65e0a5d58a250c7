"""What comes after what, as a picture: a column for each depth, a box for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordee.core.draw.charts import framed, text_of

_WIDE, _HIGH, _GAP_X, _GAP_Y, _PAD = 150, 40, 50, 16, 10
_COLOURS = {
    "finished": "#2e7d4f",
    "skipped": "#8a94a0",
    "failed": "#c0392b",
    "cancelled": "#b7791f",
    "running": "#2b6cb0",
}
_LATER = "#c3cad2"
_MOST_LETTERS = 20


def graph_svg(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the graph as SVG.

    Args:
        nodes: `{name, after, state}`, each behind those that it comes after.
    """
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node["name"]] = 1 + max((depth.get(name, -1) for name in node["after"]), default=-1)
    places: dict[str, tuple[int, int]] = {}
    for column in range(max(depth.values(), default=0) + 1):
        for row, name in enumerate(name for name, at in depth.items() if at == column):
            places[name] = (_PAD + column * (_WIDE + _GAP_X), _PAD + row * (_HIGH + _GAP_Y))
    width = max((x for x, _ in places.values()), default=0) + _WIDE + _PAD
    height = max((y for _, y in places.values()), default=0) + _HIGH + _PAD
    parts = []
    for node in nodes:
        x, y = places[node["name"]]
        for name in node["after"]:
            if name in places:
                parts.append(_line(places[name], (x, y)))
    for node in nodes:
        x, y = places[node["name"]]
        parts.append(_box(x, y, str(node["name"]), str(node["state"])))
    said = "; ".join(f"{node['name']} {node['state']}" for node in nodes)
    svg = framed("What comes after what", said, width, height, "".join(parts), "steps")
    return f'<div style="max-width:{round(1.25 * width)}px">{svg}</div>'  # a few boxes stay boxes on a wide page


def _line(begin: tuple[int, int], end: tuple[int, int]) -> str:
    x, y = begin[0] + _WIDE, begin[1] + _HIGH / 2
    to_x, to_y = end[0] - 6, end[1] + _HIGH / 2
    half = (x + to_x) / 2
    curve = (
        f'<path d="M{x} {y} C{half} {y} {half} {to_y} {to_x} {to_y}" fill="none" stroke="#8a94a0" stroke-width="1.5"/>'
    )
    return curve + f'<path d="M{to_x + 6} {to_y} l-7 -4 v8 z" fill="#8a94a0"/>'


def _box(x: int, y: int, name: str, state: str) -> str:
    colour = _COLOURS.get(state, _LATER)
    shown = name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="none" stroke="{colour}" stroke-width="2"/>'
        f'<rect x="{x}" y="{y}" width="7" height="{_HIGH}" rx="3" fill="{colour}"/>'
        f'<text x="{x + 16}" y="{y + 17}" font-size="13" font-weight="600" fill="currentColor">{text_of(shown)}</text>'
        f'<text x="{x + 16}" y="{y + 32}" font-size="11" fill="currentColor">{text_of(state)}</text>'
    )
