"""One group's samples from the sealed series and the tail, as one grid."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cordee.errors import UsageError
from cordee.runs.grids import STATISTICS, Axes, Samples, natural, rollup
from cordee.runs.sealed import SealedGroup

if TYPE_CHECKING:
    from cordee.runs.reader import Grid

_MOST_VALUES = 1 << 31


def read_grid(
    telemetry: Path,
    group: str,
    sealed: Axes | None,
    samples: list[Samples],
    metrics: Sequence[str] | None,
    start: float | None,
    stop: float | None,
    every: int | None,
    statistic: str,
) -> Grid:
    """Return the grid that `Run.grid` describes.

    Args:
        sealed: the axes of what is sealed, if anything is.
        samples: those of the tail.

    Raises:
        UsageError: see `Run.grid`.
    """
    from cordee.runs.reader import Grid

    axes = copy.deepcopy(sealed) if sealed is not None else Axes(samples[0].schema["cadence"])
    if sealed is None:
        axes.settle(samples)
    axes.extend(of_schema.schema for of_schema in samples)
    axes.include(samples)
    names = _chosen(metrics, axes.names, "there is no such metric in this group")
    source = _Source(telemetry, group, sealed, axes, samples, names)
    first = axes.first if start is None else max(axes.first, math.ceil(start / axes.cadence - 1e-6))
    last = axes.stop if stop is None else min(axes.stop, math.ceil(stop / axes.cadence - 1e-6))
    factor = 1
    if every is not None:
        if every not in axes.levels:
            raise UsageError("there are no such bins", given=every, allowed=[str(level) for level in axes.levels])
        _chosen([statistic], list(STATISTICS), "there is no such statistic")
        factor = axes.levels[every]
        first, last = first // factor, -(-last // factor)
    last = max(first, last)
    if len(names) * (last - first) * len(axes.devices) > _MOST_VALUES:
        raise UsageError(
            "this grid would not fit into memory",
            given=f"{len(names)} metrics x {last - first} times x {len(axes.devices)} devices",
            allowed=f"{_MOST_VALUES} values",
            next="ask for fewer metrics, for a shorter time with start and stop, or for bins with every=60",
        )
    values = source.slots(first, last) if every is None else source.bins(every, statistic, first, last)
    order = sorted(range(len(axes.devices)), key=lambda at: natural(axes.devices[at]))
    described = {metric["name"]: metric for metric in axes.metrics}
    return Grid(
        group=group,
        cadence=axes.cadence * factor,
        times=np.arange(first, last, dtype=np.float64) * factor * axes.cadence,
        devices=[axes.devices[at] for at in order],
        metrics=names,
        values=values if order == list(range(len(order))) else values[:, :, order],
        units={name: described[name].get("unit", "") for name in names},
        sources={name: described[name].get("source", "") for name in names},
    )


class _Source:
    """Sealed and tail of one group as one, by absolute slots or bins; devices in the order of `axes`."""

    def __init__(
        self, telemetry: Path, group: str, sealed: Axes | None, axes: Axes, samples: list[Samples], names: list[str]
    ) -> None:
        self._sealed = SealedGroup(telemetry, group, sealed) if sealed is not None else None
        self._axes = axes
        self._samples = samples
        self._names = names
        known = {} if sealed is None else {name: at for at, name in enumerate(sealed.names)}
        self._rows = [at for at, name in enumerate(names) if name in known]
        self._indices = [known[names[at]] for at in self._rows]

    def slots(self, first: int, stop: int) -> np.ndarray:
        """Return (metric, slot, device) of the slots [first, stop)."""
        values = np.full((len(self._names), stop - first, len(self._axes.devices)), np.nan, dtype=np.float32)
        if self._sealed is not None:
            low, high = max(first, self._sealed.axes.first), min(stop, self._sealed.axes.stop)
            if high > low and self._indices:
                known = self._sealed.read(self._indices, low, high)
                values[self._rows, low - first : high - first, : known.shape[2]] = known
        devices = {device: at for at, device in enumerate(self._axes.devices)}
        for of_schema in self._samples:
            of_schema.paint(values, first, devices, {name: at for at, name in enumerate(self._names)})
        return values

    def bins(self, level: int, statistic: str, first: int, stop: int) -> np.ndarray:
        """Return (metric, bin, device) of the bins [first, stop): those that the tail touches are made anew."""
        factor = self._axes.levels[level]
        values = np.full((len(self._names), stop - first, len(self._axes.devices)), np.nan, dtype=np.float32)
        if self._sealed is not None and self._indices:
            known = self._sealed.read_level(level, statistic, self._indices, first, stop)
            values[self._rows, :, : known.shape[2]] = known
        touched = sorted({int(at) for of_schema in self._samples for at in np.unique(of_schema.slots // factor)})
        for low, high in _stretches([at for at in touched if first <= at < stop], max(1, 3600 // factor)):
            made = rollup(self.slots(low * factor, high * factor), factor)
            values[:, low - first : high - first] = made[STATISTICS.index(statistic)]
        return values


def _stretches(bins: list[int], longest: int) -> list[tuple[int, int]]:
    """Return [first, stop) of the runs of neighbouring bins, none longer than `longest`."""
    stretches: list[tuple[int, int]] = []
    for at in bins:
        if stretches and stretches[-1][1] == at and at - stretches[-1][0] < longest:
            stretches[-1] = (stretches[-1][0], at + 1)
        else:
            stretches.append((at, at + 1))
    return stretches


def _chosen(wanted: Sequence[str] | None, there: list[str], text: str) -> list[str]:
    if isinstance(wanted, str):
        wanted = [wanted]
    for name in wanted or ():
        if name not in there:
            raise UsageError(text, given=name, allowed=there)
    return list(there if wanted is None else wanted)
