"""A4 pages with what a scoring needs on paper: facts, the score, charts, heat maps, tables. In millimetres."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fpdf import FPDF

from cordee.core.draw.axes import nice_ticks, tick_text
from cordee.core.draw.charts import ChartLine
from cordee.core.draw.clean import one_line
from cordee.core.draw.images import Colour, rgb
from cordee.systems.score.report import figures
from cordee.systems.score.report.classes import Course, colour_of
from cordee.systems.score.report.pen import FONT, INK, MARGIN, SOFT, WIDTH, PaperPen, PaperPlace, plain
from cordee.systems.score.report.words import factor

if TYPE_CHECKING:
    from cordee.systems.score.report.reduce import PlotLayout
    from cordee.systems.score.result import Saturation

_INNER = WIDTH - 2 * MARGIN
_LINES = [rgb(text) for text in ("0072b2", "d55e00", "009e73", "cc79a7", "b58900", "56b4e9", "7a5195", "6c757d")]
_AREA = {"score": rgb("0072b2"), "depth": rgb("7fb8d8"), "breadth": rgb("f2c879"), "time": rgb("e4e7ea")}
_CHART_HEIGHT, _MOST_MAP = 34.0, 30.0


class Paper:
    """Pages that are filled from above; what does not fit goes to the next page."""

    def __init__(self, foot: str) -> None:
        self._pdf = _Pages(plain(foot))
        self._pdf.set_margins(MARGIN, MARGIN, MARGIN)
        self._pdf.set_auto_page_break(True, MARGIN + 4)
        self._pen = PaperPen(self._pdf)

    def finish(self) -> bytes:
        """Return the document."""
        return bytes(self._pdf.output())

    def page(self, title: str) -> None:
        """Begin a page."""
        pdf = self._pdf
        pdf.add_page()
        self._pen.font(15, bold=True)
        pdf.multi_cell(_INNER, 7, plain(one_line(title, 160)), new_x="LMARGIN", new_y="NEXT")
        pdf.ln(1.5)

    def heading(self, words: str, room: float = 24.0) -> None:
        """Write a heading on a page that has room for it and for what stands below."""
        self._room(room)
        self._pdf.ln(3)
        self._pen.font(11, bold=True)
        self._pdf.multi_cell(_INNER, 5.5, plain(words), new_x="LMARGIN", new_y="NEXT")
        self._pdf.ln(1)

    def text(self, words: str, *, size: float = 9, bold: bool = False) -> None:
        """Write a paragraph."""
        self._pen.font(size, bold=bold)
        self._pdf.multi_cell(
            _INNER, size * 0.47, plain(one_line(words, 1200)), align="L", new_x="LMARGIN", new_y="NEXT"
        )
        self._pdf.ln(0.8)

    def bullets(self, lines: Sequence[str], size: float = 8.5) -> None:
        """Write lines, each with a dot before it."""
        self._pen.font(size)
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
            self._pen.font(8.5, colour=SOFT)
            self._pdf.cell(38, 4.3, plain(name))
            self._pen.font(8.5)
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
            self._pen.box(x, y + side * (1 - height), side * width, side * height, _AREA[name])
        self._pen.outline(x, y, side, side)
        self._pen.font(26, bold=True)
        pdf.set_xy(x + side + 8, y)
        pdf.cell(34, 12, f"{shares.score:.1f}")
        self._pen.font(9.5)
        factors = [f"{name} {factor(result, name)}" for name in figures.PARTS]
        pdf.set_xy(x + side + 36, y + 4)
        pdf.cell(100, 5, " \u00d7 ".join(["= 100", *factors]))
        left, wide, top = x + side + 8, _INNER - side - 8, y + 15
        self._pen.font(7.5)
        for name, points in figures.losses(shares):
            width = wide * points / 100
            self._pen.box(left, top, width, 7, _AREA[name])
            if width > 8:
                pdf.set_text_color(*((255, 255, 255) if name == "score" else INK))
                pdf.set_xy(left, top)
                pdf.cell(width, 7, f"{points:.0f}", align="C")
            left += width
        self._pen.outline(x + side + 8, top, wide, 7)
        self._pen.key(
            x + side + 8,
            top + 10,
            [
                (f"{'score' if name == 'score' else 'lost to ' + name} {points:.1f}", _AREA[name])
                for name, points in figures.losses(shares)
            ],
        )
        self._pen.font(7.5, colour=SOFT)
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
                    self._pen.box(x, y, x_end - x + 0.05, height * share, colour_of(name))
                base[at] += share
        self._pen.outline(*place)
        self._pen.time_axis(place, float(found.seconds[-1]))
        keys = [(f"{name} {float(shares.mean()):.0%}", colour_of(name)) for name, shares in found.shares.items()]
        end = self._pen.key(MARGIN + 10, place.y + height + 5, keys)
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
        self._pen.font(8, bold=True)
        self._pdf.set_xy(place.x, place.y)
        self._pdf.cell(place.width, 4, plain(title))
        inner = PaperPlace(place.x + 15, place.y + 5.5, place.width - 16, place.height - 5.5)
        values = [value for line in lines for edge in _edges(line) for value in edge if math.isfinite(value)]
        if not values:
            return
        ticks = nice_ticks(min(0.0, *values), max(values) if max(values) > 0 else 1.0, 3)
        low, high = ticks[0], ticks[-1]
        seconds = max((line.x[-1] for line in lines if line.x), default=1.0) or 1.0
        self._pen.font(6.5, colour=SOFT)
        for tick in ticks:
            y = inner.y + inner.height * (1 - (tick - low) / (high - low))
            self._pen.rule(inner.x, y, inner.x + inner.width, y)
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
                    self._pen.area(edge, colour)
            for stretch in _known(line.x, line.y, line.y):
                self._pen.line([at(x, y) for x, y, _ in stretch], colour)
        self._pen.time_axis(inner, seconds)
        if len(lines) > 1:
            self._pen.key(
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
        self._pen.font(8, bold=True)
        pdf.cell(80, 4, plain(title))
        self._pen.colour_scale(pdf.get_y(), ends, kind)
        place = PaperPlace(MARGIN + 24, pdf.get_y() + 5, _INNER - 24, height)
        pdf.image(io.BytesIO(png), place.x, place.y, place.width, place.height)
        self._pen.outline(*place)
        self._pen.font(6.5, colour=SOFT)
        for where, label in figures.row_marks(plan, height, 3.0):
            pdf.set_xy(MARGIN - 2, place.y + where - 1.5)
            pdf.cell(25, 3, plain(label if len(label) <= 18 else "..." + label[-15:]), align="R")
        seconds = float(plan.seconds[-1] - plan.seconds[0]) + plan.bin_s
        self._pen.time_axis(place, seconds)
        pdf.set_xy(MARGIN, place.y + height + 6)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table whose columns are as wide as their words need."""
        pdf = self._pdf
        self._pen.font(8)
        needed = [
            min(60.0, max(pdf.get_string_width(plain(row[at])) for row in [head, *rows]) + 4) for at in range(len(head))
        ]
        scale = min(1.0, _INNER / sum(needed))
        widths = [width * scale for width in needed]
        self._row(head, widths, SOFT)
        for row in rows:
            if self._room(6):
                self._row(head, widths, SOFT)
            self._row(row, widths, INK)
        pdf.ln(1)

    def _row(self, row: Sequence[str], widths: Sequence[float], colour: Colour) -> None:
        self._pen.font(8, bold=colour == SOFT, colour=colour)
        for width, cell in zip(widths, row, strict=True):
            self._pdf.cell(width, 4.8, self._pen.cut(plain(one_line(cell, 200)), width - 1))
        self._pdf.ln(4.8)
        self._pen.rule(MARGIN, self._pdf.get_y(), MARGIN + sum(widths), self._pdf.get_y())

    def _room(self, height: float) -> bool:
        """Begin a page where this one has not so much room; returns whether it did."""
        full = self._pdf.will_page_break(height)
        if full:
            self._pdf.add_page()
        return full


class _Pages(FPDF):
    """Pages with a foot."""

    def __init__(self, foot: str) -> None:
        super().__init__()
        self._foot = foot

    def footer(self) -> None:
        self.set_y(-12)
        self.set_font(FONT, "", 7)
        self.set_text_color(*SOFT)
        self.cell(_INNER - 20, 4, self._foot)
        self.cell(20, 4, f"{self.page_no()}", align="R")


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
