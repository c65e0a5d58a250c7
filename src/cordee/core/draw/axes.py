"""Round numbers for axes, and fewer points for lines that have too many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cordee.core.units import format_size

MOST_POINTS = 500


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


def time_unit(seconds: float) -> tuple[float, str]:
    """Return (seconds per unit, name) in which a stretch of time has readable ticks."""
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * size:
            return size, name
    return 1.0, "s"


def tick_text(value: float, kind: str = "number") -> str:
    """Return a tick's label; kind is number, bytes, rate (bytes per second) or ratio."""
    if kind in ("bytes", "rate"):
        return format_size(value) + ("/s" if kind == "rate" else "")
    if kind == "ratio":
        return f"{100 * value:.3g}%"
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.2g}"
    return f"{value:.6g}"


def extremes(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return at most 500 points: least and greatest of each stretch stay, and so does a stretch without a number."""
    kept_x, kept_y = [], []
    for start, stop in _stretches(len(x), MOST_POINTS // 2):
        known = [at for at in range(start, stop) if math.isfinite(y[at])]
        ends = sorted({min(known, key=y.__getitem__), max(known, key=y.__getitem__)}) if known else [start]
        kept_x += [x[at] for at in ends]
        kept_y += [y[at] for at in ends]
    return kept_x, kept_y


def reduced(values: Sequence[float], how: str) -> list[float]:
    """Return at most 500 values, each the `mean`, `min` or `max` of a stretch, NaN for one without a number."""
    found = []
    for start, stop in _stretches(len(values), MOST_POINTS):
        known = [value for value in values[start:stop] if math.isfinite(value)]
        if not known:
            found.append(math.nan)
        else:
            found.append(sum(known) / len(known) if how == "mean" else (min if how == "min" else max)(known))
    return found


def _stretches(length: int, most: int) -> Iterator[tuple[int, int]]:
    size = max(1, math.ceil(length / most))
    return ((start, min(length, start + size)) for start in range(0, length, size))
