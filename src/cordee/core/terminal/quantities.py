"""Numbers as people read them, by the units of the catalogue."""

from __future__ import annotations

import math

from cordee.core.units import format_size

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SHORT = {"watts": "W", "hertz": "Hz", "joules": "J"}


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, `-` for one that was not measured: 0.37 of a `ratio` is `37 %`."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if unit == "ratio":
        return f"{100 * value:.3g} %" if abs(value) < 10 else f"{100 * value:.0f} %"
    if unit == "bytes":
        return format_size(value)
    if unit == "bytes/s":
        return f"{format_size(value)}/s"
    if unit in _SHORT:
        size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if abs(value) >= size), (1.0, ""))
        return f"{value / size:.3g} {prefix}{_SHORT[unit]}"
    if unit == "celsius":
        return f"{value:.3g} °C"
    return f"{value:.3g}" + (f" {unit}" if unit and unit != "cores" else "")
