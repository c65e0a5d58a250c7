"""What pages draw: a metric as a heat map, as bands over the devices, as lines; sized by the picture, not by the run.

Columns begin at multiples of their length, so that a view of a growing run asked for again has the same columns and a few
more. Their length is the cadence, or one of `STEPS_S`, the shortest that gives no more columns than were asked for.

```python
from cordee.telemetry.store.views import heat

seen = heat(cordee.open_run(run), "gpu", "gpu_power_watts", columns=120)
seen.values  # float32 (device, column)
```
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.core.errors import UsageError
from cordee.telemetry.store.gridread import chosen
from cordee.telemetry.store.grids import STATISTICS
from cordee.telemetry.store.reduce import counted, merged, weighted

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)
STEPS_S: tuple[float, ...] = (*_SECONDS, 7200, 10800, 21600, 43200, 86400)
PERCENTILES = (5, 25, 50, 75, 95)

_MOST_COLUMNS = 20_000


@dataclass(frozen=True)
class Heat:
    """A metric of all devices over time.

    Attributes:
        times: float64 [column], UTC epoch seconds at which a column begins.
        devices: by row its device, or the first of the neighbours that share it; `counts`: how many they are.
        values: float32 [row, column], NaN = missing.
        low, high: the range of the finite values, NaN when there are none.
        cadence: seconds of a column; `statistic`: what a value is of the samples in it.
    """

    group: str
    metric: str
    statistic: str
    times: np.ndarray
    devices: list[Any]
    counts: list[int]
    values: np.ndarray
    low: float
    high: float
    unit: str
    source: str
    cadence: float


@dataclass(frozen=True)
class Bands:
    """How the devices were spread at each time: arrays [point]; NaN where nothing was measured, and `count` is 0.

    A device counts by its mean in the point's time. Infinities stand at the ends of the order; `mean` is of the finite.

    Attributes:
        times: float64, UTC epoch seconds at which a point begins; it is `cadence` seconds long.
        count: float32, devices that were measured.
        mean, min, p5, p25, p50, p75, p95, max: float32 over the devices; percentiles between two of them are interpolated.
    """

    group: str
    metric: str
    times: np.ndarray
    count: np.ndarray
    mean: np.ndarray
    min: np.ndarray
    p5: np.ndarray
    p25: np.ndarray
    p50: np.ndarray
    p75: np.ndarray
    p95: np.ndarray
    max: np.ndarray
    unit: str
    source: str
    cadence: float


@dataclass(frozen=True)
class Lines:
    """A metric of a few devices over time: `mean`, `low` and `high` float32 [device, point] of the samples in a point."""

    group: str
    metric: str
    times: np.ndarray
    devices: list[Any]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    unit: str
    source: str
    cadence: float


def heat(
    run: Run,
    group: str,
    metric: str,
    start: float | None = None,
    stop: float | None = None,
    columns: int = 600,
    rows: int | None = None,
    statistic: str = "mean",
) -> Heat:
    """Return a metric of all devices of a group over time, as at most `columns` x `rows` values.

    Args:
        start, stop: UTC epoch seconds; without them from the first sample to the last. What lies outside is NaN.
        rows: where there are more devices, neighbours in the order of names share a row.
        statistic: of the samples in a cell: mean, min, max or count.

    Raises:
        UsageError: there is no such group, metric or statistic, or the size or time makes no sense.
    """
    if statistic not in STATISTICS:
        raise UsageError("there is no such statistic", given=statistic, allowed=list(STATISTICS))
    if rows is not None and rows < 1:
        raise UsageError("a heat map has rows", given=rows, allowed="1 or more, or nothing")
    seen = _Cells(run, group, metric, start, stop, columns)
    values = seen.values(statistic)
    devices, counts = seen.devices, [1] * len(seen.devices)
    if rows is not None and len(devices) > rows:
        shared = -(-len(devices) // rows)
        values = merged(values.T, shared, statistic).T
        counts = [min(shared, len(devices) - at) for at in range(0, len(devices), shared)]
        devices = devices[::shared]
    low, high = _finite_range(values)
    return Heat(
        group,
        metric,
        statistic,
        seen.times,
        list(devices),
        counts,
        np.ascontiguousarray(values.T),
        low,
        high,
        seen.unit,
        seen.source,
        seen.step,
    )


def bands(
    run: Run, group: str, metric: str, start: float | None = None, stop: float | None = None, points: int = 600
) -> Bands:
    """Return how the devices of a group were spread over time, at no more than `points` times; see `heat`.

    Raises:
        UsageError: as `heat`.
    """
    seen = _Cells(run, group, metric, start, stop, points)
    values = seen.values("mean")
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.count_nonzero(~np.isnan(values), axis=1)
    percentiles = {f"p{share}": _percentile(ordered, count, share / 100) for share in PERCENTILES}
    finite = np.isfinite(values)
    known = np.count_nonzero(finite, axis=1)
    total = np.where(finite, values, 0).sum(axis=1, dtype=np.float64)
    mean = np.divide(total, known, out=np.full(len(total), np.nan), where=known > 0)
    return Bands(
        group=group,
        metric=metric,
        times=seen.times,
        count=count.astype(np.float32),
        mean=mean.astype(np.float32),
        min=_percentile(ordered, count, 0.0),
        max=_percentile(ordered, count, 1.0),
        unit=seen.unit,
        source=seen.source,
        cadence=seen.step,
        **percentiles,
    )


def lines(
    run: Run,
    group: str,
    metric: str,
    devices: Sequence[Any],
    start: float | None = None,
    stop: float | None = None,
    points: int = 600,
) -> Lines:
    """Return a metric of these devices over time, at no more than `points` times; see `heat`.

    Raises:
        UsageError: as `heat`, or there is no such device.
    """
    seen = _Cells(run, group, metric, start, stop, points)
    places = {str(device): at for at, device in enumerate(seen.devices)}
    for device in devices:
        if str(device) not in places:
            raise UsageError("there is no such device in this group", given=device, allowed=seen.devices[:50])
    chosen = [places[str(device)] for device in devices]
    mean, low, high = (np.ascontiguousarray(seen.values(of)[:, chosen].T) for of in ("mean", "min", "max"))
    named = [seen.devices[at] for at in chosen]
    return Lines(group, metric, seen.times, named, mean, low, high, seen.unit, seen.source, seen.step)


def step_for(cadence: float, span_s: float, columns: int) -> float:
    """Return the shortest column, in seconds, of which `columns` cover the time: the cadence or one of `STEPS_S`."""
    least = span_s / columns
    for step in (cadence, *STEPS_S):
        slots = step / cadence
        if step >= least * (1 - 1e-9) and slots >= 1 - 1e-9 and abs(slots - round(slots)) < 1e-6:
            return step
    return math.ceil(least / cadence) * cadence


class _Cells:
    """One metric in columns of one length: `times`, `devices`, and per statistic float32 [column, device]."""

    def __init__(
        self, run: Run, group: str, metric: str, start: float | None, stop: float | None, columns: int
    ) -> None:
        if not 1 <= columns <= _MOST_COLUMNS:
            raise UsageError("a view has columns", given=columns, allowed=f"1 to {_MOST_COLUMNS}")
        for moment in (start, stop):
            if moment is not None and not abs(moment) < 1e11:
                raise UsageError("this is no time", given=moment, allowed="UTC epoch seconds")
        self._source = source = run.source(group)
        self._metric = metric
        chosen([metric], list(source.metrics), "there is no such metric in this group")
        described = source.metrics[metric]
        self.unit, self.source = described.get("unit", ""), described.get("source", "")
        self.devices = source.devices
        known = source.extent()
        begins = known[0] * source.cadence if start is None else start
        ends = max(begins, known[1] * source.cadence) if stop is None else stop
        if ends < begins:
            raise UsageError("the time ends before it begins", given=f"{start} to {stop}", allowed="start before stop")
        self.step = step_for(source.cadence, ends - begins, columns)
        first, last = self._bounds(begins, ends)
        if last - first > columns:  # it begins or ends within a column
            self.step = step_for(source.cadence, (ends - begins) * (columns + 1) / columns, columns)
            first, last = self._bounds(begins, ends)
        self.times = np.arange(first, last, dtype=np.float64) * self.step
        self._first, self._count = first, last - first
        # What lies outside the samples is not looked for.
        self._factor = round(self.step / source.cadence)
        self._low = min(last, max(first, known[0] // self._factor))
        self._high = max(self._low, min(last, -(-known[1] // self._factor)))

    def values(self, statistic: str) -> np.ndarray:
        """Return float32 [column, device]."""
        found = np.full((self._count, len(self.devices)), np.nan, dtype=np.float32)
        if self._high > self._low:
            found[self._low - self._first : self._high - self._first] = self._known(statistic)
        return found

    def _bounds(self, begins: float, ends: float) -> tuple[int, int]:
        first = math.floor(begins / self.step + 1e-6)
        return first, max(first, math.ceil(ends / self.step - 1e-6))

    def _known(self, statistic: str) -> np.ndarray:
        """Return the columns in which there may be samples, from the longest bins that fit into a column."""
        low, high, metric = self._low, self._high, [self._metric]
        for level, bin_slots in sorted(self._source.levels.items(), reverse=True):
            if self._factor % bin_slots:
                continue
            each = self._factor // bin_slots
            if statistic == "mean" and each > 1:
                means, counts = self._source.bins(level, ("mean", "count"), metric, low * each, high * each)
                return weighted(means[0], counts[0], each)
            found = self._source.bins(level, (statistic,), metric, low * each, high * each)
            return merged(found[0, 0], each, statistic)
        slots = self._source.slots(metric, low * self._factor, high * self._factor)[0]
        return merged(counted(slots) if statistic == "count" else slots, self._factor, statistic)


def _finite_range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.fmin.reduce(values, axis=None, initial=np.inf), np.fmax.reduce(values, axis=None, initial=-np.inf)
    if not (math.isfinite(low) and math.isfinite(high)):
        finite = values[np.isfinite(values)]
        if not len(finite):
            return math.nan, math.nan
        low, high = finite.min(), finite.max()
    return float(low), float(high)


def _percentile(ordered: np.ndarray, count: np.ndarray, share: float) -> np.ndarray:
    """Return float32 [point] of values [point, device] in order with the missing ones last, `count` of them measured."""
    place = np.maximum(count - 1, 0) * share
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    points = np.arange(len(ordered))
    low, high = ordered[points, below], ordered[points, above]
    part = (place - below).astype(np.float32)
    with np.errstate(invalid="ignore"):
        between = np.where(part > 0, low + (high - low) * part, low)
    found: np.ndarray = np.where(low == high, low, between).astype(np.float32)
    return found
