"""A group's samples, metric by metric, on the clock of the devices that are scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

_WHOLE_VALUES = 4_000_000
_MOST_RATIO = 1.2


class SampleGroup:
    """One telemetry group of a run or a recording.

    A small group is read once and kept, a large one metric by metric whenever it is asked for.

    Attributes:
        devices: in the order of columns.
        times: float64 [time], UTC epoch seconds, one every `cadence_s`.
        sources: by metric, who measured it.
    """

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        described = run.metrics(name)
        self.sources = {metric: str(about.get("source") or "") for metric, about in described.items()}
        self._metrics = list(described)
        first = run.grid(name, self._metrics[:1])
        self.devices: list[Any] = first.devices
        self.times, self.cadence_s = first.times, first.cadence
        self._kept: dict[str, np.ndarray] = {self._metrics[0]: first.values[0]}
        self._small = len(self._metrics) * first.values[0].size <= _WHOLE_VALUES

    def __contains__(self, metric: str) -> bool:
        return metric in self._metrics

    def load(self, metric: str) -> np.ndarray | None:
        """Return float32 [time, device], NaN = missing; None when nobody measured it."""
        if metric not in self:
            return None
        if metric in self._kept:
            return self._kept[metric]
        wanted = self._metrics if self._small else [metric]
        start, stop = float(self.times[0]) - self.cadence_s / 4, float(self.times[-1]) + self.cadence_s / 4
        grid = self._run.grid(self._name, wanted, start, stop)
        places = {device: at for at, device in enumerate(grid.devices)}
        columns = [places[device] for device in self.devices]
        found: dict[str, np.ndarray] = {name: grid.values[at][:, columns] for at, name in enumerate(wanted)}
        if self._small:
            self._kept.update(found)
        return found[metric]

    def measured(self, metric: str) -> bool:
        """Return whether there is a value of this metric at all."""
        values = self.load(metric)
        return values is not None and bool(np.isfinite(values).any())


def number(value: Any) -> float | None:
    """Return a number of a fact; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        return None
    return float(value)


def within_range(ratios: np.ndarray) -> np.ndarray:
    """Return ratios of at most 1; what is below 0 or far above 1 is a blank of some source and was not measured."""
    if not (ratios > 1).any() and not (ratios < 0).any():
        return ratios
    inside: np.ndarray = np.where((ratios >= 0) & (ratios <= _MOST_RATIO), np.minimum(ratios, np.float32(1)), np.nan)
    return inside.astype(np.float32)


def onto(values: np.ndarray, times: np.ndarray, cadence_s: float, target: np.ndarray, target_s: float) -> np.ndarray:
    """Return values [time, device] on other times: means where those are further apart, else the newest at each moment.

    Args:
        times, target: float64, ascending, `cadence_s` and `target_s` apart; values stand for the time before them.
    """
    if len(times) == len(target) and np.array_equal(times, target):
        return values
    result = np.full((len(target), values.shape[1]), np.nan, dtype=np.float32)
    if not len(times) or not len(target):
        return result
    if cadence_s >= target_s:
        at = np.ceil((target - times[0]) / cadence_s - 1e-6).astype(np.int64)
        inside = (at >= 0) & (at < len(times))
        result[inside] = values[at[inside]]
        return result
    at = np.ceil((times - target[0]) / target_s - 1e-6).astype(np.int64)
    inside = (at >= 0) & (at < len(target))
    known = np.isfinite(values[inside])
    total = np.zeros(result.shape)
    count = np.zeros(result.shape)
    np.add.at(total, at[inside], np.where(known, values[inside], 0.0))
    np.add.at(count, at[inside], known)
    np.divide(total, count, out=total, where=count > 0)
    result[count > 0] = total[count > 0]
    return result
