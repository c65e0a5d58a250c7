"""Pictures made of characters: lines of blocks, heat maps in colours that the colour-blind can tell apart, or without any."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from cordee.core.draw.images import CIVIDIS

_SPARKS = "▁▂▃▄▅▆▇█"
_SHADES = ".:-=+*#%@"
_COLOURS = [f"#{colour}" for colour in CIVIDIS]


def sparkline(values: Sequence[float], width: int = 40, low: float | None = None) -> str:
    """Return the last values as a line of blocks, from the least to the greatest; values that are no numbers are blank.

    Args:
        low: what the lowest block stands for; None: the least of them.
    """
    values = values[-width:]
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    least, most = min(known) if low is None else min(low, *known), max(known)
    scale = (len(_SPARKS) - 1) / (most - least) if most > least else 0.0
    return "".join(_SPARKS[round((value - least) * scale)] if math.isfinite(value) else " " for value in values)


def shaded(values: Sequence[float], low: float, high: float) -> str:
    """Return one row of a heat map without colours: `.` is the least, `@` the greatest, a blank was not measured."""
    return "".join(_SHADES[_level(value, low, high, len(_SHADES))] if math.isfinite(value) else " " for value in values)


def coloured(upper: Sequence[float], lower: Sequence[float] | None, low: float, high: float) -> Text:
    """Return two rows of a heat map as one row of half blocks; what was not measured has no colour."""
    text = Text(no_wrap=True, overflow="crop", end="\n")
    for at, above in enumerate(upper):
        below = lower[at] if lower is not None else math.nan
        if math.isfinite(above):
            ground = _colour(below, low, high) if math.isfinite(below) else None
            text.append("▀", Style(color=_colour(above, low, high), bgcolor=ground))
        elif math.isfinite(below):
            text.append("▄", Style(color=_colour(below, low, high)))
        else:
            text.append(" ")
    return text


def scale(*, colours: bool) -> Text:
    """Return the map's levels, from the least to the greatest."""
    if not colours:
        return Text(_SHADES)
    return Text.assemble(*(("█", Style(color=colour)) for colour in _COLOURS))


def _level(value: float, low: float, high: float, levels: int) -> int:
    share = (value - low) / (high - low) if high > low else 0.0
    return max(0, min(levels - 1, int(share * levels)))


def _colour(value: float, low: float, high: float) -> str:
    return _COLOURS[_level(value, low, high, len(_COLOURS))]
