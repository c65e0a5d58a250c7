"""Things in boxes in boxes, as nodes in switches in groups: thousands of coloured cells that can still be told apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordee.core.draw.charts import framed, text_of
from cordee.core.draw.images import ramp

WIDTH = 1120
_HIGHEST = 1100
_CELLS = (14, 11, 9, 7, 6, 5, 4, 3)
_ASPECTS = (4.0, 1.0)
_MOST_ROWS = 4
_MOST_NAMED = 40
_LABEL, _PAD, _GAP = 15, 5, 6
_LEGEND = 26
_LETTER = 6.2
_GREY, _LINE, _PALE = "#6b7683", "#8a94a0", "#8a94a0"


class PictureCell(NamedTuple):
    """A small square; `faint` where a filter leaves it out."""

    colour: str
    faint: bool = False


@dataclass(frozen=True)
class Item:
    """What stands in a box: its cells share one outline; without cells it is there, and not meant."""

    name: str
    text: str = ""
    cells: Sequence[PictureCell] = ()


@dataclass(frozen=True)
class Box:
    """A box with a label, and in it either items or further boxes."""

    label: str
    items: Sequence[Item] = ()
    boxes: Sequence[Box] = field(default=())


@dataclass(frozen=True)
class Legend:
    """What colours mean: some by name, or a scale from the least to the greatest."""

    title: str
    colours: Sequence[tuple[str, str]] = ()
    ends: tuple[str, str] | None = None


def boxes(title: str, said: str, content: Sequence[Box], legend: Legend) -> str:
    """Return the picture as SVG: as large as it is legible, as small as it must be.

    Args:
        title: above it, and said to readers that do not see it.
        said: what it says, for them.
        content: the outermost boxes.
        legend: of the cells' colours.
    """
    items = [item for box in content for item in _all(box)]
    cells = max((len(item.cells) for item in items), default=1) or 1
    named = len(items) <= _MOST_NAMED
    letters = max((len(item.name) for item in items), default=0) if named else 0
    tried: list[tuple[float, int, _Placed, _Look]] = []
    for side, aspect in itertools.product(_CELLS, _ASPECTS):
        look = _Look(side, cells, letters, aspect)
        placed = _flow([_placed(box, look, WIDTH - 2) for box in content], WIDTH - 2)
        tried.append((placed.height, -len(tried), placed, look))
        if placed.height <= _HIGHEST:
            break
    _, _, placed, look = tried[-1] if tried[-1][0] <= _HIGHEST else min(tried, key=lambda one: one[:2])
    height = math.ceil(placed.height) + 2 * _LABEL + _LEGEND
    body = [_text(_PAD, _LABEL, title, 13, bold=True), *_legend(legend, height - _LEGEND + 4)]
    body += _drawn(placed, 1.0, _LABEL + 8.0, look)
    return framed(title, said, WIDTH, height, "".join(body), "time boxes")


def alone(svg: str) -> str:
    """Return a picture as a file of its own, on white."""
    head, rest = svg.split(">", 1)
    style = "<style>svg{background:#fff}text{font-family:system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif}</style>"
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{head}>{style}<rect width="100%" height="100%" fill="#fff"/>{rest}\n'
    )


class _Look:
    """How large things are: the side of a cell, what follows from it, and how much wider than high the inner boxes are."""

    def __init__(self, side: int, cells: int, letters: int, aspect: float) -> None:
        self.side, self.named, self.aspect = side, letters > 0, aspect
        self.rows = min(cells, _MOST_ROWS)
        self.width = max(side * math.ceil(cells / self.rows), math.ceil(letters * _LETTER))
        self.height = side * self.rows + (_LABEL - 2 if self.named else 0)
        self.gap = 1 if side < 9 else 3


class _Placed(NamedTuple):
    """Something with a size; `inside` is what stands in it, by its place."""

    width: float
    height: float
    inside: list[tuple[float, float, _Placed | Item]]
    label: str = ""
    outlined: bool = False


def _all(box: Box) -> Iterator[Item]:
    yield from box.items
    for inner in box.boxes:
        yield from _all(inner)


def _placed(box: Box, look: _Look, width: float) -> _Placed:
    inner = width - 2 * _PAD
    if box.boxes:
        held = _flow([_placed(one, look, inner) for one in box.boxes], inner)
    else:
        held = _grid(box.items, look, inner)
    wide = max(held.width, min(inner, len(box.label) * _LETTER if look.side >= 7 else 0))
    inside: list[tuple[float, float, _Placed | Item]] = [(_PAD, _LABEL, held)]
    return _Placed(wide + 2 * _PAD, held.height + _LABEL + _PAD, inside, box.label, True)


def _flow(parts: Sequence[_Placed], width: float) -> _Placed:
    """Put boxes beside each other, in as many lines as they need."""
    inside: list[tuple[float, float, _Placed | Item]] = []
    x = y = line = widest = 0.0
    for part in parts:
        if x and x + part.width > width:
            x, y, line = 0.0, y + line + _GAP, 0.0
        inside.append((x, y, part))
        widest = max(widest, x + part.width)
        x, line = x + part.width + _GAP, max(line, part.height)
    return _Placed(widest, y + line, inside)


def _grid(items: Sequence[Item], look: _Look, width: float) -> _Placed:
    """Put items into equal lines, together about as much wider than high as the look says."""
    step, rise = look.width + look.gap, look.height + look.gap + 1
    wanted = max(4, math.ceil(math.sqrt(look.aspect * len(items) * rise / step)))
    lines = max(1, round(len(items) / wanted), math.ceil(len(items) * step / max(step, width)))
    across = max(1, math.ceil(len(items) / lines))
    inside: list[tuple[float, float, _Placed | Item]] = [
        (at % across * step, at // across * rise, item) for at, item in enumerate(items)
    ]
    return _Placed(across * step, math.ceil(len(items) / across) * rise, inside)


def _drawn(what: _Placed, x: float, y: float, look: _Look) -> Iterator[str]:
    if what.outlined:
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{what.width:.1f}" height="{what.height:.1f}" rx="3" '
            f'fill="none" stroke="{_LINE}" stroke-opacity=".55"/>'
        )
        size = 11 if look.side >= 7 else 9
        most = int((what.width - 2 * _PAD) / (size * _LETTER / 11))
        label = what.label if len(what.label) <= most else what.label.split(" ")[0][:most]
        yield _text(x + _PAD, y + 11, label, size, tip=what.label)
    for right, down, one in what.inside:
        if isinstance(one, _Placed):
            yield from _drawn(one, x + right, y + down, look)
        else:
            yield _item(one, x + right, y + down, look)


def _item(item: Item, x: float, y: float, look: _Look) -> str:
    side, columns = look.side, math.ceil(max(1, len(item.cells)) / look.rows)
    name = _text(x, y + look.rows * side + 11, item.name, 10) if look.named else ""
    tip = f"<title>{text_of(item.text or item.name)}</title>"
    if not item.cells:
        return (
            f'<g>{tip}<rect x="{x:.1f}" y="{y:.1f}" width="{side * columns - 0.5:.1f}" height="{side * look.rows - 0.5:.1f}" '
            f'fill="{_PALE}" fill-opacity=".13"/>{name}</g>'
        )
    parts = []
    for column in range(columns):
        cells = item.cells[column * look.rows : (column + 1) * look.rows]
        first = 0
        for at in range(1, len(cells) + 1):
            if at == len(cells) or cells[at] != cells[first]:
                faint = ' fill-opacity=".15"' if cells[first].faint else ""
                parts.append(
                    f'<rect x="{x + column * side:.1f}" y="{y + first * side:.1f}" width="{side - 0.5}" '
                    f'height="{(at - first) * side - 0.5:.1f}" fill="{cells[first].colour}"{faint}/>'
                )
                first = at
    return f"<g>{tip}{''.join(parts)}{name}</g>"


def _legend(legend: Legend, y: float) -> Iterator[str]:
    yield _text(_PAD, y + 12, legend.title, 11)
    x = _PAD + len(legend.title) * _LETTER + 14
    if legend.ends is not None:
        yield _text(x, y + 12, legend.ends[0], 11)
        x += len(legend.ends[0]) * _LETTER + 6
        for red, green, blue in ramp():
            yield f'<rect x="{x:.1f}" y="{y + 3:.1f}" width="5.5" height="10" fill="#{red:02x}{green:02x}{blue:02x}"/>'
            x += 5
        yield _text(x + 6, y + 12, legend.ends[1], 11)
        x += 6 + len(legend.ends[1]) * _LETTER + 14
    for colour, text in legend.colours:
        yield f'<rect x="{x:.1f}" y="{y + 3:.1f}" width="10" height="10" fill="{colour}"/>'
        yield _text(x + 14, y + 12, text, 11)
        x += 14 + len(text) * _LETTER + 12


def _text(x: float, y: float, text: str, size: int, *, bold: bool = False, tip: str = "") -> str:
    weight = ' font-weight="600"' if bold else ""
    hover = f"<title>{text_of(tip)}</title>" if tip and tip != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{_GREY}"{weight}>{text_of(text)}{hover}</text>'
