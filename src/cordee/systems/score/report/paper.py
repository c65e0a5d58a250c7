"""A4 pages with what a scoring needs on paper: facts, the score, charts, heat maps, tables. In millimetres."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fpdf import FPDF

from cordee.core.draw.axes import nice_ticks, tick_text, time_unit
from cordee.core.draw.charts import ChartLine
from cordee.core.draw.clean import one_line
from cordee.core.draw.images import Colour, encode_png, ramp, rgb
from cordee.systems.score.report import figures
from cordee.systems.score.report.classes import Course, colour_of
from cordee.systems.score.report.words import factor

if TYPE_CHECKING:
    from cordee.systems.score.report.reduce import PlotLayout
    from cordee.systems.score.result import Saturation

WIDTH, HEIGHT, MARGIN = 210.0, 297.0, 15.0
_INNER = WIDTH - 2 * MARGIN
_FONT = "helvetica"
_LINES = [rgb(text) for text in ("0072b2", "d55e00", "009e73", "cc79a7", "b58900", "56b4e9", "7a5195", "6c757d")]
_AREA = {"score": rgb("0072b2"), "depth": rgb("7fb8d8"), "breadth": rgb("f2c879"), "time": rgb("e4e7ea")}
_SOFT, _FG, _LINE = rgb("566170"), rgb("1c2430"), rgb("d5dae0")
_PLAIN = str.maketrans({"→": "->", "…": "...", "–": "-", "—": "-", "’": "'", "“": '"', "”": '"', "≤": "<=", "≥": ">="})
_CHART_HEIGHT, _MOST_MAP = 34.0, 30.0


class PaperPlace(NamedTuple):
    """Where something is drawn."""

    x: float
    y: float
    width: float
    height: float


class Paper:
    """Pages that are filled from above; what does not fit goes to the next page."""

    def __init__(self, foot: str) -> None:
        self._pdf = _Pages(plain(foot))
        self._pdf.set_margins(MARGIN, MARGIN, MARGIN)
        self._pdf.set_auto_page_break(True, MARGIN + 4)

    def finish(self) -> bytes:
        """Return the document."""
        return bytes(self._pdf.output())

    def page(self, title: str) -> None:
        """Begin a page."""
        pdf = self._pdf
        pdf.add_page()
        self._font(15, bold=True)
        pdf.multi_cell(_INNER, 7, plain(one_line(title, 160)), new_x="LMARGIN", new_y="NEXT")
        pdf.ln(1.5)

    def heading(self, words: str, room: float = 24.0) -> None:
        """Write a heading on a page that has room for it and for what stands below."""
        self._room(room)
        self._pdf.ln(3)
        self._font(11, bold=True)
        self._pdf.multi_cell(_INNER, 5.5, plain(words), new_x="LMARGIN", new_y="NEXT")
        self._pdf.ln(1)

    def text(self, words: str, *, size: float = 9, bold: bool = False) -> None:
        """Write a paragraph."""
        self._font(size, bold=bold)
        self._pdf.multi_cell(
            _INNER, size * 0.47, plain(one_line(words, 1200)), align="L", new_x="LMARGIN", new_y="NEXT"
        )
        self._pdf.ln(0.8)

    def bullets(self, lines: Sequence[str], size: float = 8.5) -> None:
        """Write lines, each with a dot before it."""
        self._font(size)
        for line in lines:
            self._pdf.set_x(MARGIN + 2)
            self._pdf.cell(3, size * 0.47, "\u00b7")
            self._pdf.multi_cell(
                _INNER - 5, size * 0.47, plain(one_line(line, 500)), align="L", new_x="LMARGIN", new_y="NEXT"
            )
        self._pdf.ln(0.8)

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write names and values."""
        for name, text in rows:
            self._room(6)
            self._font(8.5, colour=_SOFT)
            self._pdf.cell(38, 4.3, plain(name))
            self._font(8.5)
            self._pdf.multi_cell(
                _INNER - 38, 4.3, plain(one_line(text, 400)), align="L", new_x="LMARGIN", new_y="NEXT"
            )  # fmt: skip

    def score(self, result: Saturation) -> None:
        """Draw the score as an area, and where the 100 points went."""
        pdf, side, shares = self._pdf, 34.0, result.shares
        self._room(side + 6)
        x, y = MARGIN, pdf.get_y() + 1
        time, breadth, depth = shares.time or 0.0, shares.breadth or 0.0, shares.depth or 0.0
        for name, width, height in (
            ("time", 1.0, 1.0),
            ("breadth", time, 1.0),
            ("depth", time, breadth),
            ("score", time, min(1.0, breadth * depth)),
        ):
            self._box(x, y + side * (1 - height), side * width, side * height, _AREA[name])
        self._outline(x, y, side, side)
        self._font(26, bold=True)
        pdf.set_xy(x + side + 8, y)
        pdf.cell(34, 12, f"{shares.score:.1f}")
        self._font(9.5)
        factors = [f"{name} {factor(result, name)}" for name in figures.PARTS]
        pdf.set_xy(x + side + 36, y + 4)
        pdf.cell(100, 5, " \u00d7 ".join(["= 100", *factors]))
        left, wide, top = x + side + 8, _INNER - side - 8, y + 15
        self._font(7.5)
        for name, points in figures.losses(shares):
            width = wide * points / 100
            self._box(left, top, width, 7, _AREA[name])
            if width > 8:
                pdf.set_text_color(*((255, 255, 255) if name == "score" else _FG))
                pdf.set_xy(left, top)
                pdf.cell(width, 7, f"{points:.0f}", align="C")
            left += width
        self._outline(x + side + 8, top, wide, 7)
        self._key(
            x + side + 8,
            top + 10,
            [
                (f"{'score' if name == 'score' else 'lost to ' + name} {points:.1f}", _AREA[name])
                for name, points in figures.losses(shares)
            ],
        )
        self._font(7.5, colour=_SOFT)
        pdf.set_xy(x + side + 8, top + 15)
        pdf.cell(wide, 4, "Square: width is time in use, height breadth, filled by depth: the dark area is the score.")
        pdf.set_xy(MARGIN, y + side + 2)

    def classes(self, found: Course) -> None:
        """Draw the classes stacked over time."""
        pdf, height = self._pdf, 20.0
        self._room(height + 12)
        place = PaperPlace(MARGIN + 10, pdf.get_y(), _INNER - 10, height)
        scale = place.width / max(1e-9, float(found.seconds[-1]))
        base = [0.0] * (len(found.seconds) - 1)
        for name, shares in found.shares.items():
            for at, share in enumerate(shares.tolist()):
                if share > 0:
                    x, x_end = (place.x + float(found.seconds[edge]) * scale for edge in (at, at + 1))
                    y = place.y + height * (1 - base[at] - share)
                    self._box(x, y, x_end - x + 0.05, height * share, colour_of(name))
                base[at] += share
        self._outline(*place)
        self._time_axis(place, float(found.seconds[-1]))
        keys = [(f"{name} {float(shares.mean()):.0%}", colour_of(name)) for name, shares in found.shares.items()]
        end = self._key(MARGIN + 10, place.y + height + 5, keys)
        pdf.set_xy(MARGIN, end + 5)

    def pairs(self, draw: Sequence[Callable[[PaperPlace], None]]) -> None:
        """Draw charts two by two."""
        width = (_INNER - 8) / 2
        for at in range(0, len(draw), 2):
            self._room(_CHART_HEIGHT + 16)
            top = self._pdf.get_y()
            for column, one in enumerate(draw[at : at + 2]):
                one(PaperPlace(MARGIN + column * (width + 8), top, width, _CHART_HEIGHT))
            self._pdf.set_xy(MARGIN, top + _CHART_HEIGHT + 16)

    def chart(self, place: PaperPlace, title: str, lines: Sequence[ChartLine], kind: str) -> None:
        """Draw lines over seconds with their bands, axes and a legend; a gap where nothing was measured."""
        self._font(8, bold=True)
        self._pdf.set_xy(place.x, place.y)
        self._pdf.cell(place.width, 4, plain(title))
        inner = PaperPlace(place.x + 15, place.y + 5.5, place.width - 16, place.height - 5.5)
        values = [value for line in lines for edge in _edges(line) for value in edge if math.isfinite(value)]
        if not values:
            return
        ticks = nice_ticks(min(0.0, *values), max(values) if max(values) > 0 else 1.0, 3)
        low, high = ticks[0], ticks[-1]
        seconds = max((line.x[-1] for line in lines if line.x), default=1.0) or 1.0
        self._font(6.5, colour=_SOFT)
        for tick in ticks:
            y = inner.y + inner.height * (1 - (tick - low) / (high - low))
            self._rule(inner.x, y, inner.x + inner.width, y)
            self._pdf.set_xy(place.x - 2, y - 1.5)
            self._pdf.cell(16, 3, plain(tick_text(tick, kind)), align="R")

        def at(x: float, y: float) -> tuple[float, float]:
            across = inner.x + x / seconds * inner.width
            return across, inner.y + inner.height * (1 - (y - low) / (high - low))

        for number, line in enumerate(lines):
            colour = _LINES[number % len(_LINES)]
            for below, above in line.bands:
                for stretch in _known(line.x, below, above):
                    edge = [at(x, up) for x, _, up in stretch] + [at(x, down) for x, down, _ in reversed(stretch)]
                    self._area(edge, colour)
            for stretch in _known(line.x, line.y, line.y):
                self._line([at(x, y) for x, y, _ in stretch], colour)
        self._time_axis(inner, seconds)
        if len(lines) > 1:
            self._key(
                inner.x,
                place.y + place.height + 4.5,
                [(line.name, _LINES[at % len(_LINES)]) for at, line in enumerate(lines)],
                place.x + place.width,
            )

    def heat(self, title: str, png: bytes, plan: PlotLayout, ends: tuple[float, float], kind: str) -> None:
        """Draw a heat map with its scale and the names of nodes; grey is not measured."""
        import io

        pdf = self._pdf
        height = min(_MOST_MAP, max(6.0, 3.2 * len(plan.rows)))
        self._room(height + 14)
        self._font(8, bold=True)
        pdf.cell(80, 4, plain(title))
        self._ramp(pdf.get_y(), ends, kind)
        place = PaperPlace(MARGIN + 24, pdf.get_y() + 5, _INNER - 24, height)
        pdf.image(io.BytesIO(png), place.x, place.y, place.width, place.height)
        self._outline(*place)
        self._font(6.5, colour=_SOFT)
        for where, label in figures.row_marks(plan, height, 3.0):
            pdf.set_xy(MARGIN - 2, place.y + where - 1.5)
            pdf.cell(25, 3, plain(label if len(label) <= 18 else "..." + label[-15:]), align="R")
        seconds = float(plan.seconds[-1] - plan.seconds[0]) + plan.bin_s
        self._time_axis(place, seconds)
        pdf.set_xy(MARGIN, place.y + height + 6)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table whose columns are as wide as their words need."""
        pdf = self._pdf
        self._font(8)
        needed = [
            min(60.0, max(pdf.get_string_width(plain(row[at])) for row in [head, *rows]) + 4) for at in range(len(head))
        ]
        scale = min(1.0, _INNER / sum(needed))
        widths = [width * scale for width in needed]
        self._row(head, widths, _SOFT)
        for row in rows:
            if self._room(6):
                self._row(head, widths, _SOFT)
            self._row(row, widths, _FG)
        pdf.ln(1)

    def _row(self, row: Sequence[str], widths: Sequence[float], colour: Colour) -> None:
        self._font(8, bold=colour == _SOFT, colour=colour)
        for width, cell in zip(widths, row, strict=True):
            self._pdf.cell(width, 4.8, self._cut(plain(one_line(cell, 200)), width - 1))
        self._pdf.ln(4.8)
        self._rule(MARGIN, self._pdf.get_y(), MARGIN + sum(widths), self._pdf.get_y())

    def _cut(self, words: str, width: float) -> str:
        if self._pdf.get_string_width(words) <= width:
            return words
        while words and self._pdf.get_string_width(words + "...") > width:
            words = words[:-1]
        return words + "..."

    def _ramp(self, y: float, ends: tuple[float, float], kind: str) -> None:
        import io

        import numpy as np

        colours = ramp()
        png = encode_png(np.arange(len(colours), dtype=np.uint8)[None, :], colours)
        self._pdf.image(io.BytesIO(png), WIDTH - MARGIN - 66, y + 1, 24, 2.4)
        self._font(6.5, colour=_SOFT)
        self._pdf.set_xy(WIDTH - MARGIN - 84, y + 0.7)
        self._pdf.cell(17, 3, plain(tick_text(ends[0], kind)), align="R")
        self._pdf.set_xy(WIDTH - MARGIN - 41, y + 0.7)
        self._pdf.cell(17, 3, plain(tick_text(ends[1], kind)))
        self._box(WIDTH - MARGIN - 22, y + 1, 3, 2.4, (225, 228, 232))
        self._pdf.set_xy(WIDTH - MARGIN - 18, y + 0.7)
        self._pdf.cell(18, 3, "not measured")
        self._pdf.set_xy(MARGIN, y)

    def _time_axis(self, place: PaperPlace, seconds: float) -> None:
        unit, name = time_unit(seconds)
        self._font(6.5, colour=_SOFT)
        ticks = nice_ticks(0, max(1e-9, seconds / unit), 4)
        for tick in (tick for tick in ticks if tick * unit <= seconds * 1.0001):
            x = place.x + tick * unit / seconds * place.width
            self._rule(x, place.y + place.height, x, place.y + place.height + 1)
            left = min(x - 8, WIDTH - MARGIN - 16)
            self._pdf.set_xy(left, place.y + place.height + 1)
            self._pdf.cell(16, 3, f"{tick_text(tick)} {name}", align="R" if left < x - 8 else "C")

    def _key(self, x: float, y: float, keys: Sequence[tuple[str, Colour]], end: float = WIDTH - MARGIN) -> float:
        """Write a legend from (x, y) on, in as many lines as it needs; returns the y of the last."""
        self._font(7)
        left = x
        for words, colour in keys:
            width = self._pdf.get_string_width(plain(words)) + 6
            if left > x and left + width > end:
                left, y = x, y + 3.8
            self._box(left, y + 0.4, 2.4, 2.4, colour)
            self._pdf.set_xy(left + 3, y)
            self._pdf.cell(width, 3.2, plain(words))
            left += width
        return y

    def _font(self, size: float, *, bold: bool = False, colour: Colour = _FG) -> None:
        self._pdf.set_font(_FONT, "B" if bold else "", size)
        self._pdf.set_text_color(*colour)

    def _room(self, height: float) -> bool:
        """Begin a page where this one has not so much room; returns whether it did."""
        full = self._pdf.will_page_break(height)
        if full:
            self._pdf.add_page()
        return full

    def _box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        if width > 0 and height > 0:
            self._pdf.set_fill_color(*colour)
            self._pdf.rect(x, y, width, height, "F")

    def _outline(self, x: float, y: float, width: float, height: float) -> None:
        self._pdf.set_draw_color(*_SOFT)
        self._pdf.set_line_width(0.15)
        self._pdf.rect(x, y, width, height)

    def _rule(self, x: float, y: float, x_end: float, y_end: float) -> None:
        self._pdf.set_draw_color(*_LINE)
        self._pdf.set_line_width(0.15)
        self._pdf.line(x, y, x_end, y_end)

    def _line(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self._pdf.set_draw_color(*colour)
        self._pdf.set_line_width(0.3)
        if len(points) == 1:
            points = [points[0], (points[0][0] + 0.3, points[0][1])]
        self._pdf.polyline(points)

    def _area(self, points: list[tuple[float, float]], colour: Colour) -> None:
        with self._pdf.local_context(fill_opacity=0.2):
            self._pdf.set_fill_color(*colour)
            self._pdf.polygon(points, style="F")


class _Pages(FPDF):
    """Pages with a foot."""

    def __init__(self, foot: str) -> None:
        super().__init__()
        self._foot = foot

    def footer(self) -> None:
        self.set_y(-12)
        self.set_font(_FONT, "", 7)
        self.set_text_color(*_SOFT)
        self.cell(_INNER - 20, 4, self._foot)
        self.cell(20, 4, f"{self.page_no()}", align="R")


def plain(text: str) -> str:
    """Return text in the characters that every PDF reader has without an embedded font; others become `?`."""
    return text.translate(_PLAIN).encode("latin-1", "replace").decode("latin-1")


def _edges(line: ChartLine) -> Iterator[list[float]]:
    yield line.y
    for low, high in line.bands:
        yield low
        yield high


def _known(xs: list[float], low: list[float], high: list[float]) -> list[list[tuple[float, float, float]]]:
    """Return stretches of points without a gap."""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for x, below, above in zip(xs, low, high, strict=True):
        if math.isfinite(below + above):
            stretches[-1].append((x, below, above))
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
