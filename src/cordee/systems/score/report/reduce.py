"""Samples made small: rows of devices by bins of time, quantiles over devices, means per device; metric by metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordee.core.units import natural
from cordee.systems.score.trace.model import ScoredDevice

if TYPE_CHECKING:
    import numpy as np

MOST_ROWS, MOST_BINS = 500, 720
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
_COLUMNS_AT_ONCE = 512


@dataclass(frozen=True)
class PlotLayout:
    """How devices become rows and samples become bins: the same for all metrics of a group.

    Attributes:
        order: int64 [device], positions sorted by node and index.
        rows: int64 [row], where each row begins in `order`; `per_row` devices each, the last may have fewer.
        bins: int64 [bin], where each bin begins in time; `per_bin` samples each.
        seconds: float64 [bin], the middle of each bin, from the first sample.
        nodes: the node of each row's first device; `labels` what a row is called.
    """

    order: np.ndarray
    rows: np.ndarray
    bins: np.ndarray
    seconds: np.ndarray
    nodes: list[str]
    labels: list[str]
    per_row: int
    per_bin: int
    cadence_s: float

    @property
    def bin_s(self) -> float:
        """Seconds per bin."""
        return self.per_bin * self.cadence_s


@dataclass(frozen=True)
class Reduced:
    """One metric, small.

    Attributes:
        cells: float32 [row, bin], means; NaN where nothing was measured.
        bands: float32 [quantile, bin]: `QUANTILES` over devices of their means in the bin.
        mean_over: float32 [bin], mean over devices. `total` their sum, in which a device that was not measured meanwhile
            counts as the mean of the others. Both NaN where no device was measured.
        means, most: float64 [device] over all samples; `samples` int64 [device], how many there were.
    """

    name: str
    unit: str
    cells: np.ndarray
    bands: np.ndarray
    mean_over: np.ndarray
    total: np.ndarray
    means: np.ndarray
    most: np.ndarray
    samples: np.ndarray

    @property
    def measured(self) -> bool:
        """Whether there is any number."""
        return bool(self.samples.any())


def layout(keys: Sequence[tuple[str, int, str]], times: np.ndarray, cadence_s: float) -> PlotLayout:
    """Return the layout of devices, each given as (node, index, label), sampled at `times` (float64 [time])."""
    import numpy as np

    order = sorted(range(len(keys)), key=lambda at: (natural(keys[at][0]), keys[at][1], natural(keys[at][2])))
    sizes = {node: 0 for node, _, _ in keys}
    for node, _, _ in keys:
        sizes[node] += 1
    per_row = _per_row(len(keys), set(sizes.values()))
    begins = np.arange(0, len(keys), per_row)
    per_bin = max(1, math.ceil(len(times) / MOST_BINS))
    bins = np.arange(0, len(times), per_bin)
    ends = np.minimum(bins + per_bin, len(times)) - 1
    seconds = (times[bins] + times[ends]) / 2 - times[0] if len(times) else np.zeros(0)
    labels = [_label(keys, order[begin : begin + per_row]) for begin in begins]
    nodes = [keys[order[begin]][0] for begin in begins]
    return PlotLayout(np.array(order, np.int64), begins, bins, seconds, nodes, labels, per_row, per_bin, cadence_s)


def device_keys(devices: Sequence[ScoredDevice]) -> list[tuple[str, int, str]]:
    """Return devices as `layout` takes them."""
    return [
        (device.node, device.index, device.node if device.key == device.node else f"{device.node} {device.index}")
        for device in devices
    ]


def reduce_values(name: str, unit: str, values: np.ndarray, plan: PlotLayout) -> Reduced:
    """Return float32 [time, device] made small; a few hundred devices at a time, so that no second copy is held."""
    import numpy as np

    count = values.shape[1]
    binned = np.full((len(plan.bins), count), np.nan, np.float32)
    sums = np.zeros((len(plan.bins), count), np.float32)
    known = np.zeros((len(plan.bins), count), np.float32)
    means, most = np.full(count, np.nan), np.full(count, np.nan)
    samples = np.zeros(count, np.int64)
    lives = np.zeros(len(plan.bins), np.int64)
    for first in range(0, count, _COLUMNS_AT_ONCE):
        at = plan.order[first : first + _COLUMNS_AT_ONCE]
        part = values[:, at]
        finite = np.isfinite(part)
        samples[at] = finite.sum(axis=0)
        most[at] = np.where(samples[at] > 0, np.where(finite, part, -np.inf).max(axis=0, initial=-np.inf), np.nan)
        part = np.where(finite, part, 0)
        means[at] = part.sum(axis=0, dtype=np.float64) / np.where(samples[at] > 0, samples[at], np.nan)
        there = np.add.reduceat(finite, plan.bins, axis=0, dtype=np.float32)
        total = np.add.reduceat(part, plan.bins, axis=0)
        here = slice(first, first + len(at))
        sums[:, here], known[:, here] = total, there
        lives += _alive(there > 0).sum(axis=1)
        np.divide(total, there, out=binned[:, here], where=there > 0)
    cells = _quotient(np.add.reduceat(sums, plan.rows, axis=1), np.add.reduceat(known, plan.rows, axis=1))
    number = np.isfinite(binned).sum(axis=1)
    mean_over = _quotient(np.where(number > 0, np.nansum(binned, axis=1, dtype=np.float64), np.nan), number)
    together = mean_over * lives
    binned.sort(axis=1)  # NaN goes to the end
    return Reduced(name, unit, cells.T, _bands(binned, number), mean_over, together, means, most, samples)


def _alive(measured: np.ndarray) -> np.ndarray:
    """Return bool [bin, device]: between the first and the last bin in which a device was measured."""
    import numpy as np

    begun: np.ndarray = np.logical_or.accumulate(measured, axis=0)
    begun &= np.logical_or.accumulate(measured[::-1], axis=0)[::-1]
    return begun


def _bands(ordered: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the quantiles of each row's first `number` values, which ascend."""
    import numpy as np

    found = np.full((len(QUANTILES), len(ordered)), np.nan, np.float32)
    rows = np.flatnonzero(number)
    for at, quantile in enumerate(QUANTILES):
        place = (number[rows] - 1) * quantile
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, number[rows] - 1)
        weight = place - low
        found[at, rows] = ordered[rows, low] * (1 - weight) + ordered[rows, high] * weight
    return found


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    import numpy as np

    out = np.full(above.shape, np.nan, np.float32)
    np.divide(above, below, out=out, where=below > 0, casting="same_kind")
    return out


def _per_row(count: int, sizes: set[int]) -> int:
    """Return how many devices share a row: nodes of one size are not cut where it can be helped."""
    least = max(1, math.ceil(count / MOST_ROWS))
    if least == 1 or len(sizes) != 1:
        return least
    size = sizes.pop()
    if least > size:
        return math.ceil(least / size) * size
    return next(divisor for divisor in range(least, size + 1) if size % divisor == 0)


def _label(keys: Sequence[tuple[str, int, str]], members: Sequence[int]) -> str:
    first, last = keys[members[0]], keys[members[-1]]
    return first[2] if len(members) == 1 else f"{first[2]} to {last[2]}"
