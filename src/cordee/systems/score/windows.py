"""The run cut into windows of equal length: long enough for a diagnosis, short enough to see phases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SHORTEST_S, LONGEST_S = 10.0, 60.0
_WANTED = 120
_MOST_CELLS = 2_000_000


@dataclass(frozen=True)
class WindowCut:
    """Windows of `samples` samples each, the last one perhaps shorter.

    Attributes:
        starts: float64 [window], UTC epoch seconds.
    """

    length_s: float
    samples: int
    starts: np.ndarray

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self.starts)

    def count(self, values: np.ndarray) -> np.ndarray:
        """Return how many samples [time, column] of each window are there."""
        counted: np.ndarray = np.add.reduceat(np.isfinite(values), self._edges(), axis=0, dtype=np.int64)
        return counted

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the means [window, column] of [time, column], NaN where nothing was measured."""
        edges = self._edges()
        known = np.isfinite(values)
        count = np.add.reduceat(known, edges, axis=0, dtype=np.int64)
        total = np.add.reduceat(np.where(known, values, np.float32(0)), edges, axis=0, dtype=np.float64)
        mean: np.ndarray = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return mean

    def _edges(self) -> np.ndarray:
        return np.arange(self.windows) * self.samples


def cut(times: np.ndarray, cadence_s: float, devices: int) -> WindowCut:
    """Return windows of 10 to 60 s, about 120 where that fits; a run shorter than 20 s is one window.

    Where there would be over two million windows x devices they are longer.

    Args:
        times: float64 [time], ascending, `cadence_s` apart; not empty.
    """
    seconds = len(times) * cadence_s
    length = min(LONGEST_S, max(SHORTEST_S, seconds / _WANTED))
    length = max(length, seconds * devices / _MOST_CELLS)
    samples = max(1, round(length / cadence_s))
    if len(times) < 2 * samples:
        samples = len(times)
    number = math.ceil(len(times) / samples)
    if number > 1 and len(times) - (number - 1) * samples < samples / 2:
        number -= 1  # what is left over goes into the last window
    return WindowCut(samples * cadence_s, samples, times[0] - cadence_s + np.arange(number) * samples * cadence_s)
