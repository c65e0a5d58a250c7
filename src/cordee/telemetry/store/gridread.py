"""One group's samples from the sealed series and the tail, as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.core.errors import UsageError
from cordee.telemetry.store.grids import STATISTICS, Axes, PackedSamples, natural, rollup
from cordee.telemetry.store.sealed import SealedGroup
from cordee.telemetry.store.unsealed.window import Window

if TYPE_CHECKING:
    from cordee.telemetry.store.model import Grid

_MOST_VALUES = 1 << 31


class GridSource:
    """Sealed and tail of one group as one, by absolute slots or bins; kept as long as nobody adds devices or metrics.

    Args:
        telemetry: the run's `telemetry/` folder.
        sealed: the axes of what is sealed, if anything is.
        window: the samples of the tail, or `samples`: those that are kept packed.

    Attributes:
        devices: names, in natural order: the order of columns in all that is read.
        metrics: what is measured, by name.
        samples: those that are packed.
    """

    def __init__(
        self,
        telemetry: Path,
        group: str,
        sealed: Axes | None,
        window: Window | None,
        samples: Sequence[PackedSamples] = (),
    ) -> None:
        self.group = group
        self._window = window
        self.samples = samples
        self._axes = _joined(sealed, window, samples)
        self._sealed = SealedGroup(telemetry, group, sealed) if sealed is not None else None
        self._sealed_names = {} if sealed is None else {name: at for at, name in enumerate(sealed.names)}
        self.metrics: dict[str, dict[str, Any]] = {metric["name"]: metric for metric in self._axes.metrics}
        self.devices = sorted(self._axes.devices, key=natural)
        self._column = {device: at for at, device in enumerate(self.devices)}
        self._sealed_columns = self._columns(sealed.devices if sealed is not None else ())
        self._window_columns = self._columns(window.devices if window is not None else ())

    @property
    def cadence(self) -> float:
        """Seconds per slot."""
        return self._axes.cadence

    @property
    def levels(self) -> dict[int, int]:
        """Slots per bin of each rollup, by its length in seconds."""
        return self._axes.levels

    def extent(self) -> tuple[int, int]:
        """Return the absolute slots [first, stop) between which there are samples; samples of wrong clocks do not count."""
        axes = self._axes
        found = self._window.extent(axes.origin, axes.end) if self._window is not None else None
        if found is None:
            return axes.first, axes.stop
        if axes.stop == axes.first:
            return found
        return min(axes.first, found[0]), max(axes.stop, found[1])

    def outside(self) -> int:
        """Return how many samples of the tail are left out because their clock was wrong."""
        return self._window.outside(self._axes.origin, self._axes.end) if self._window is not None else 0

    def damaged(self) -> dict[str, str]:
        """Return what of the sealed series could not be read so far, by file, with the reason."""
        return self._sealed.damaged() if self._sealed is not None else {}

    def slots(self, names: Sequence[str], first: int, stop: int) -> np.ndarray:
        """Return float32 (metric, slot, device) of the slots [first, stop)."""
        values = np.full((len(names), stop - first, len(self.devices)), np.nan, dtype=np.float32)
        self._read_sealed(values, names, first, stop)
        low, high = max(first, self._axes.origin), min(stop, self._axes.end)
        if high > low:
            inside = values[:, low - first : high - first]
            if self._window is not None:
                self._window.paint(inside, low, names, self._window_columns)
            for of_schema in self.samples:
                of_schema.paint(inside, low, self._column, {name: at for at, name in enumerate(names)})
        return values

    def bins(self, level: int, statistics: Sequence[str], names: Sequence[str], first: int, stop: int) -> np.ndarray:
        """Return float32 (statistic, metric, bin, device) of the bins [first, stop); those in the tail are made anew."""
        factor = self.levels[level]
        values = np.full((len(statistics), len(names), stop - first, len(self.devices)), np.nan, dtype=np.float32)
        for at, statistic in enumerate(statistics):
            self._read_sealed(values[at], names, first, stop, level, statistic)
        for low, high in _merged([(low // factor, -(-high // factor)) for low, high in self._touched()]):
            for begin in range(max(first, low), min(stop, high), max(1, 3600 // factor)):
                end = min(stop, high, begin + max(1, 3600 // factor))
                made = rollup(self.slots(names, begin * factor, end * factor), factor, statistics)
                values[:, :, begin - first : end - first] = made
        return values

    def _read_sealed(
        self, values: np.ndarray, names: Sequence[str], first: int, stop: int, level: int = 0, statistic: str = ""
    ) -> None:
        """Write what is sealed into `values` (metric, slot or bin, device)."""
        if self._sealed is None:
            return
        factor = self.levels[level] if level else 1
        low, high = max(first, self._sealed.axes.first // factor), min(stop, -(-self._sealed.axes.stop // factor))
        rows = [at for at, name in enumerate(names) if name in self._sealed_names]
        if high <= low or not rows:
            return
        indices = [self._sealed_names[names[at]] for at in rows]
        if level:
            known = self._sealed.read_level(level, statistic, indices, low, high)
        else:
            known = self._sealed.read(indices, low, high)
        columns = self._sealed_columns
        if len(columns) == values.shape[2] and (np.diff(columns) == 1).all():
            values[rows, low - first : high - first] = known
        else:
            for at, row in enumerate(rows):
                values[row, low - first : high - first, columns] = known[at].T

    def _touched(self) -> list[tuple[int, int]]:
        """Return the slots [low, high) of the tail."""
        low, high = self._axes.origin, self._axes.end
        if self._window is not None:
            return self._window.stretches(low, high)
        slots = np.unique(np.concatenate([of_schema.slots for of_schema in self.samples] or [np.zeros(0, np.int64)]))
        cuts = np.flatnonzero(np.diff(slots) > 3600)
        begins, ends = np.r_[slots[:1], slots[cuts + 1]], np.r_[slots[cuts], slots[-1:]] + 1
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def _columns(self, devices: Any) -> np.ndarray:
        return np.array([self._column[device] for device in devices], dtype=np.int64)


def read_grid(
    source: GridSource,
    metrics: Sequence[str] | None,
    start: float | None,
    stop: float | None,
    every: int | None,
    statistic: str,
) -> Grid:
    """Return the grid that `Run.grid` describes.

    Raises:
        UsageError: see `Run.grid`.
    """
    from cordee.telemetry.store.model import Grid

    names = chosen(metrics, list(source.metrics), "there is no such metric in this group")
    cadence, (first, last) = source.cadence, source.extent()
    first = first if start is None else max(first, math.ceil(start / cadence - 1e-6))
    last = last if stop is None else min(last, math.ceil(stop / cadence - 1e-6))
    factor = 1
    if every is not None:
        if every not in source.levels:
            raise UsageError("there are no such bins", given=every, allowed=[str(level) for level in source.levels])
        chosen([statistic], list(STATISTICS), "there is no such statistic")
        factor = source.levels[every]
        first, last = first // factor, -(-last // factor)
    last = max(first, last)
    if len(names) * (last - first) * len(source.devices) > _MOST_VALUES:
        raise UsageError(
            "this grid would not fit into memory",
            given=f"{len(names)} metrics x {last - first} times x {len(source.devices)} devices",
            allowed=f"{_MOST_VALUES} values",
            next="ask for fewer metrics, for a shorter time with start and stop, or for bins with every=60",
        )
    if every is None:
        values = source.slots(names, first, last)
    else:
        values = source.bins(every, [statistic], names, first, last)[0]
    return Grid(
        group=source.group,
        cadence=cadence * factor,
        times=np.arange(first, last, dtype=np.float64) * factor * cadence,
        devices=list(source.devices),
        metrics=names,
        values=values,
        units={name: source.metrics[name].get("unit", "") for name in names},
        sources={name: source.metrics[name].get("source", "") for name in names},
    )


def chosen(wanted: Sequence[str] | None, there: list[str], text: str) -> list[str]:
    """Return the names that are wanted of those there are, all of them where none is named.

    Raises:
        UsageError: with this text: one is not there.
    """
    if isinstance(wanted, str):
        wanted = [wanted]
    for name in wanted or ():
        if name not in there:
            raise UsageError(text, given=name, allowed=there)
    return list(there if wanted is None else wanted)


def _joined(sealed: Axes | None, window: Window | None, samples: Sequence[PackedSamples]) -> Axes:
    """Return the axes of what is sealed and the tail as one; of a window the extent is left out, since it grows."""
    if sealed is not None:
        axes = Axes(**{**vars(sealed), "devices": list(sealed.devices), "metrics": list(sealed.metrics)})
    else:
        axes = Axes(window.cadence if window is not None else samples[0].schema["cadence"])
        if window is not None:
            axes.settle(*window.moments())
        else:
            times = np.concatenate([of_schema.times for of_schema in samples])
            axes.settle(times, np.ones(len(times), dtype=np.int64))
    if window is not None:
        axes.extend([{"devices": list(window.devices), "metrics": list(window.metrics.values())}])
    axes.extend(of_schema.schema for of_schema in samples)
    axes.include(samples)
    return axes


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches [low, high), given in order, with those that touch as one."""
    found: list[tuple[int, int]] = []
    for low, high in stretches:
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
