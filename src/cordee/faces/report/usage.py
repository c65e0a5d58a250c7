"""What nodes and ranks used, read at a resolution that fits into memory whatever the run's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from cordee.telemetry.store.reader import Run

_MOST_SAMPLES = 2_000_000
_BINS_S = (5, 60)


@dataclass
class UsageSamples:
    """Samples of one group, NaN = missing.

    Attributes:
        times: float64 [time], UTC epoch seconds; samples, or the beginnings of bins when the run is long or large.
        values: float32 [metric, time, device], means over the bin.
        mean, most: float64 [metric, device] over the whole time, from all samples.
        samples: int64 [metric, device], how many there were.
    """

    group: str
    devices: list[Any]
    metrics: list[str]
    units: dict[str, str]
    times: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    most: np.ndarray
    samples: np.ndarray

    def of(self, metric: str, device: Any) -> tuple[float, float] | None:
        """Return (mean, most) of one device, None when it was not measured."""
        if metric not in self.metrics or device not in self.devices:
            return None
        place = self.metrics.index(metric), self.devices.index(device)
        return (float(self.mean[place]), float(self.most[place])) if self.samples[place] else None


def read_usage(run: Run, group: str, seconds: float, devices: int) -> UsageSamples:
    """Return a group's samples, in bins of 5 or 60 s where there would be too many.

    Args:
        seconds: about how long the run took.
        devices: about how many devices there are.

    Raises:
        UsageError: there is no such group, or it is too large in bins of a minute too.
    """
    every = next((bin_s for bin_s in (1, *_BINS_S) if seconds / bin_s * devices <= _MOST_SAMPLES), _BINS_S[-1])
    if every > 1:
        try:
            return _binned(run, group, every)
        except UsageError:
            pass  # samples of another cadence have no such bins
    return _whole(run, group)


def _whole(run: Run, group: str) -> UsageSamples:
    import numpy as np

    grid = run.grid(group)
    return _usage(grid, grid.values, np.isfinite(grid.values).astype(np.float32))


def _binned(run: Run, group: str, every: int) -> UsageSamples:
    import numpy as np

    grid = run.grid(group, every=every)
    most = run.grid(group, every=every, statistic="max").values
    count = run.grid(group, every=every, statistic="count").values
    times = min(grid.values.shape[1], most.shape[1], count.shape[1])  # the run may have gone on in between
    devices = min(grid.values.shape[2], most.shape[2], count.shape[2])
    grid.times, grid.devices = grid.times[:times], grid.devices[:devices]
    grid.values = grid.values[:, :times, :devices]
    return _usage(grid, most[:, :times, :devices], np.nan_to_num(count[:, :times, :devices]))


def _usage(grid: Any, most: np.ndarray, count: np.ndarray) -> UsageSamples:
    import numpy as np

    samples = count.sum(axis=1, dtype=np.float64)
    total = (np.nan_to_num(grid.values) * count).sum(axis=1, dtype=np.float64)
    known = np.where(np.isfinite(most), most, -np.inf)
    peak = known.max(axis=1, initial=-np.inf).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(samples > 0, total / samples, np.nan)
    return UsageSamples(
        grid.group,
        grid.devices,
        grid.metrics,
        grid.units,
        grid.times,
        grid.values,
        mean,
        np.where(samples > 0, peak, np.nan),
        samples.astype(np.int64),
    )
