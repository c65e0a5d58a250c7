"""Nodes by checks as one picture: a column for every node, a row for every check, readable without colours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cordee.core.draw.charts import framed, text_of
from cordee.core.hostlist import fold_nodes

STATUSES = ("pass", "warn", "fail", "unknown", "skip")
MARKS = {"pass": "", "warn": "!", "fail": "×", "unknown": "?", "skip": "–"}
MOST_NODES = 500
_WIDTH, _LABELS, _ROW, _GAP = 1120, 190, 22, 3
_WIDEST, _MARKED = 46, 11
_MOST_LABELLED = 44
_HEIGHTS = {"pass": 0.3, "warn": 0.65, "fail": 1.0, "unknown": 0.85, "skip": 0.12}
_LONGEST = 30
_MOST_NAMED = 200


class Cell(NamedTuple):
    """What one check says of one node; `text` is its evidence."""

    status: str
    text: str = ""


class HeatRow(NamedTuple):
    """One check and its cells, in the order of the nodes; None where the node has no such result."""

    name: str
    cells: Sequence[Cell | None]


def heatmap(title: str, nodes: Sequence[str], rows: Sequence[HeatRow], excluded: Sequence[str] = ()) -> str:
    """Return the picture as SVG.

    Where columns are wide every cell has a mark; where they are narrow the height of a cell says the same.

    Args:
        title: said to readers that do not see the picture.
        nodes: names, one for each column; at most `MOST_NODES`.
        rows: the checks.
        excluded: nodes that get a triangle below.
    """
    step = min(_WIDEST, (_WIDTH - _LABELS - 8) / max(1, len(nodes)))
    parts = []
    for index, row in enumerate(rows):
        top = index * (_ROW + _GAP) + 4
        parts.append(
            f'<text class="tick" x="{_LABELS - 8}" y="{top + 15}" text-anchor="end">{text_of(row.name[:_LONGEST])}</text>'
        )
        parts += _marked(nodes, row, top, step) if step >= _MARKED else _narrow(nodes, row, top, step)
    foot = len(rows) * (_ROW + _GAP) + 6
    parts += _triangles(nodes, set(excluded), foot, step)
    parts += _names(nodes, foot + 12, step)
    longest = max((len(node) for node in nodes), default=0) if len(nodes) <= _MOST_LABELLED else 2
    height = math.ceil(foot + 22 + 7 * min(longest, 24))
    bad = sum(cell is not None and cell.status not in ("pass", "skip") for row in rows for cell in row.cells)
    said = f"{len(rows)} checks on {len(nodes)} nodes, {bad} results that are not a pass; the table below names them"
    return f'<div class="wide">{framed(title, said, _WIDTH, height, "".join(parts), "time heat")}</div>'


def legend(rows: Sequence[HeatRow], excluded: Sequence[str] = ()) -> str:
    """Return what the marks and colours mean, those that occur."""
    there = {cell.status for row in rows for cell in row.cells if cell is not None}
    keys = [(status, MARKS[status]) for status in STATUSES if status in there]
    parts = [f'<span class="key"><i class="s-{status}">{mark}</i>{status}</span>' for status, mark in keys]
    if excluded:
        parts.append('<span class="key">▲ left out</span>')
    return f'<div class="legend heat">{"".join(parts)}</div>'


def _marked(nodes: Sequence[str], row: HeatRow, top: float, step: float) -> Iterator[str]:
    for index, (node, cell) in enumerate(zip(nodes, row.cells, strict=True)):
        if cell is None:
            continue
        x, width = _LABELS + index * step, step - min(3.0, step / 6)
        tip = f"{node}, {row.name}: {cell.status}" + (f": {cell.text}" if cell.text else "")
        yield f'<g><rect class="s-{cell.status}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_ROW}" rx="2"/>'
        if MARKS[cell.status]:
            yield (
                f'<text class="in" x="{x + width / 2:.1f}" y="{top + 16}" text-anchor="middle">{MARKS[cell.status]}</text>'
            )
        yield f"<title>{text_of(tip)}</title></g>"


def _narrow(nodes: Sequence[str], row: HeatRow, top: float, step: float) -> Iterator[str]:
    """Yield one rectangle for each stretch of nodes with the same status; those that deviate are at least 2 wide."""
    start = 0
    for status, group in itertools.groupby(row.cells, key=lambda cell: cell.status if cell is not None else ""):
        count = len(list(group))
        here, x = nodes[start : start + count], _LABELS + start * step
        start += count
        if not status:
            continue
        height = _ROW * _HEIGHTS[status]
        width = count * step if status in ("pass", "skip") else max(2.0, count * step)
        tip = f"{fold_nodes(here)[:_MOST_NAMED]}, {row.name}: {status}"
        yield (
            f'<rect class="s-{status}" x="{x:.1f}" y="{top + _ROW - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
            f"<title>{text_of(tip)}</title></rect>"
        )


def _triangles(nodes: Sequence[str], excluded: set[str], top: float, step: float) -> Iterator[str]:
    for index, node in enumerate(nodes):
        if node in excluded:
            x = _LABELS + (index + 0.5) * step - min(1.5, step / 12)
            yield (
                f'<path class="out" d="M{x:.1f} {top}l4 8h-8z"><title>{text_of(f"{node} is left out")}</title></path>'
            )


def _names(nodes: Sequence[str], top: float, step: float) -> Iterator[str]:
    """Yield the nodes' names below their columns; of many nodes only some, to count by."""
    every = 1 if len(nodes) <= _MOST_LABELLED else math.ceil(len(nodes) / 12)
    for index in range(0, len(nodes), every):
        x = _LABELS + (index + 0.5) * step - min(1.5, step / 12)
        name = text_of(nodes[index][:24])
        if every > 1:
            yield f'<text class="tick" x="{x:.1f}" y="{top + 14}" text-anchor="middle">{name}</text>'
        else:
            yield (
                f'<text class="tick" transform="translate({x + 4:.1f} {top + 4}) rotate(-90)" text-anchor="end">{name}</text>'
            )
