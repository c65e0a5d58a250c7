"""Pictures made of characters: lines of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SPARKS = "▁▂▃▄▅▆▇█"


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
