"""The classes of a diagnosis over time: shares of the devices, and device by device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordee.core.draw.images import Colour, rgb
from cordee.systems.score.result import CLASSES, UNKNOWN

if TYPE_CHECKING:
    import numpy as np

    from cordee.systems.score.report.reduce import PlotLayout
    from cordee.systems.score.result import Saturation, ScoreWindows

# From work to waiting, as they are stacked.
STACKED = (
    "compute",
    "memory",
    "latency",
    "launch",
    "mixed",
    "communication",
    "contention",
    "transfer",
    "input",
    "checkpoint",
    "idle",
    "hang",
    UNKNOWN,
)
COLOURS = {
    "compute": "0072b2",
    "memory": "56b4e9",
    "latency": "7a5195",
    "launch": "cc79a7",
    "mixed": "8c6d46",
    "communication": "d55e00",
    "contention": "e78ac3",
    "transfer": "f0e442",
    "input": "e69f00",
    "checkpoint": "009e73",
    "idle": "8a939e",
    "hang": "b2182b",
    UNKNOWN: "d5d9de",
}
MOST_COLUMNS = 240


@dataclass(frozen=True)
class Course:
    """Classes over time.

    Attributes:
        seconds: float64 [column + 1], edges from the run's first window.
        shares: by class: float64 [column], the share of the devices; those of all classes add up to 1.
    """

    seconds: np.ndarray
    shares: dict[str, np.ndarray]


def colour_of(name: str) -> Colour:
    """Return the colour of a class."""
    return rgb(COLOURS[name])


def course(saturation: Saturation) -> Course | None:
    """Return the shares of classes over time in at most `MOST_COLUMNS` columns; None without windows."""
    import numpy as np

    windows = saturation.windows
    count, devices = windows.classes.shape
    if not count or not devices:
        return None
    per_column = -(-count // MOST_COLUMNS)
    begins = np.arange(0, count, per_column)
    number = np.add.reduceat(np.full(count, devices), begins)
    shares = {}
    for at, name in [*enumerate(CLASSES), (-1, UNKNOWN)]:
        found = np.add.reduceat((windows.classes == at).sum(axis=1), begins) / number
        if found.any():
            shares[name] = found
    starts = windows.starts[begins] - windows.starts[0]
    last = windows.starts[-1] - windows.starts[0] + windows.length_s
    return Course(np.append(starts, last), {name: shares[name] for name in STACKED if name in shares})


def per_device(windows: ScoreWindows, plan: PlotLayout, most_columns: int) -> np.ndarray:
    """Return uint8 [row, column]: the commonest class of a row's devices, counted from 1; 0 where none is known."""
    import numpy as np

    count = len(windows.classes)
    begins = np.arange(0, count, -(-count // most_columns))
    ordered = windows.classes[:, plan.order]
    best = np.zeros((len(begins), len(plan.rows)), np.int32)
    found = np.zeros(best.shape, np.uint8)
    for at in range(len(CLASSES)):
        hits = np.add.reduceat((ordered == at).astype(np.int32), begins, axis=0)
        hits = np.add.reduceat(hits, plan.rows, axis=1)
        found[hits > best] = at + 1
        best = np.maximum(best, hits)
    return found.T
