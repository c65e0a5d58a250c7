"""What pages of paper are drawn with: letters, strokes, axes and keys, at places in millimetres."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

from fpdf import FPDF

from cordee.core.draw.axes import nice_ticks, tick_text, time_unit
from cordee.core.draw.images import Colour, encode_png, ramp, rgb

WIDTH, MARGIN = 210.0, 15.0
FONT = "helvetica"
SOFT, INK, _LINE = rgb("566170"), rgb("1c2430"), rgb("d5dae0")
_PLAIN = str.maketrans({"→": "->", "…": "...", "–": "-", "—": "-", "’": "'", "“": '"', "”": '"', "≤": "<=", "≥": ">="})


class PaperPlace(NamedTuple):
    """Where something is drawn."""

    x: float
    y: float
    width: float
    height: float


class PaperPen:
    """Draws on the page that is being filled, over whatever is there.

    Args:
        pdf: the pages.
    """

    def __init__(self, pdf: FPDF) -> None:
        self._pdf = pdf

    def font(self, size: float, *, bold: bool = False, colour: Colour = INK) -> None:
        """Choose what is written with from now on."""
        self._pdf.set_font(FONT, "B" if bold else "", size)
        self._pdf.set_text_color(*colour)

    def box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Fill a rectangle, from its upper left corner on."""
        if width > 0 and height > 0:
            self._pdf.set_fill_color(*colour)
            self._pdf.rect(x, y, width, height, "F")

    def outline(self, x: float, y: float, width: float, height: float) -> None:
        """Draw the edges of a rectangle."""
        self._pdf.set_draw_color(*SOFT)
        self._pdf.set_line_width(0.15)
        self._pdf.rect(x, y, width, height)

    def rule(self, x: float, y: float, x_end: float, y_end: float) -> None:
        """Draw a thin straight line."""
        self._pdf.set_draw_color(*_LINE)
        self._pdf.set_line_width(0.15)
        self._pdf.line(x, y, x_end, y_end)

    def line(self, points: list[tuple[float, float]], colour: Colour) -> None:
        """Draw a line through points; a single one is a short stroke."""
        self._pdf.set_draw_color(*colour)
        self._pdf.set_line_width(0.3)
        if len(points) == 1:
            points = [points[0], (points[0][0] + 0.3, points[0][1])]
        self._pdf.polyline(points)

    def area(self, points: list[tuple[float, float]], colour: Colour) -> None:
        """Tint what points enclose; lines below stay visible."""
        with self._pdf.local_context(fill_opacity=0.2):
            self._pdf.set_fill_color(*colour)
            self._pdf.polygon(points, style="F")

    def time_axis(self, place: PaperPlace, seconds: float) -> None:
        """Write the time below a chart, from 0 on."""
        unit, name = time_unit(seconds)
        self.font(6.5, colour=SOFT)
        ticks = nice_ticks(0, max(1e-9, seconds / unit), 4)
        for tick in (tick for tick in ticks if tick * unit <= seconds * 1.0001):
            x = place.x + tick * unit / seconds * place.width
            self.rule(x, place.y + place.height, x, place.y + place.height + 1)
            left = min(x - 8, WIDTH - MARGIN - 16)
            self._pdf.set_xy(left, place.y + place.height + 1)
            self._pdf.cell(16, 3, f"{tick_text(tick)} {name}", align="R" if left < x - 8 else "C")

    def key(self, x: float, y: float, keys: Sequence[tuple[str, Colour]], end: float = WIDTH - MARGIN) -> float:
        """Write a legend from (x, y) on, in as many lines as it needs; returns the y of the last."""
        self.font(7)
        left = x
        for words, colour in keys:
            width = self._pdf.get_string_width(plain(words)) + 6
            if left > x and left + width > end:
                left, y = x, y + 3.8
            self.box(left, y + 0.4, 2.4, 2.4, colour)
            self._pdf.set_xy(left + 3, y)
            self._pdf.cell(width, 3.2, plain(words))
            left += width
        return y

    def colour_scale(self, y: float, ends: tuple[float, float], kind: str) -> None:
        """Draw the colours of a heat map from the lowest to the highest value, at the right of the page."""
        import numpy as np

        colours = ramp()
        png = encode_png(np.arange(len(colours), dtype=np.uint8)[None, :], colours)
        self._pdf.image(io.BytesIO(png), WIDTH - MARGIN - 66, y + 1, 24, 2.4)
        self.font(6.5, colour=SOFT)
        self._pdf.set_xy(WIDTH - MARGIN - 84, y + 0.7)
        self._pdf.cell(17, 3, plain(tick_text(ends[0], kind)), align="R")
        self._pdf.set_xy(WIDTH - MARGIN - 41, y + 0.7)
        self._pdf.cell(17, 3, plain(tick_text(ends[1], kind)))
        self.box(WIDTH - MARGIN - 22, y + 1, 3, 2.4, (225, 228, 232))
        self._pdf.set_xy(WIDTH - MARGIN - 18, y + 0.7)
        self._pdf.cell(18, 3, "not measured")
        self._pdf.set_xy(MARGIN, y)

    def cut(self, words: str, width: float) -> str:
        """Return words, shortened to what fits into a width."""
        if self._pdf.get_string_width(words) <= width:
            return words
        while words and self._pdf.get_string_width(words + "...") > width:
            words = words[:-1]
        return words + "..."


def plain(text: str) -> str:
    """Return text in the characters that every PDF reader has without an embedded font; others become `?`."""
    return text.translate(_PLAIN).encode("latin-1", "replace").decode("latin-1")
