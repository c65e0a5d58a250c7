"""Samples on an integer time grid: slot = round(time / cadence), values float32 (metric, slot, device), NaN = missing.

When two samples fall into one slot (a clock that jumped back, a late tick), what was written later wins, value by value; a
missing value never hides a measured one. Samples that lie more than a day before or 400 days after a run's first ones
come from a wrong clock: they are left out and counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from cordee.telemetry.store.unsealed.spool import SpooledValues

    Packed = tuple[np.ndarray, np.ndarray | SpooledValues]

TURN_SLOTS = 1200
LEVELS_S = (5, 60)
STATISTICS = ("mean", "min", "max", "count")

_DAY_S = 86400
_ORIGIN_SLOTS = 3600
_LONGEST_S = 400 * _DAY_S


@dataclass
class Axes:
    """What the axes of a group mean; devices and metrics are only ever added.

    Attributes:
        cadence: seconds per slot.
        origin: the absolute slot of index 0; a multiple of every rollup's length and of `TURN_SLOTS`.
        first, stop: the absolute slots between which there are samples.
        outside: samples left out because their clock was wrong.
    """

    cadence: float
    origin: int = 0
    first: int = 0
    stop: int = 0
    outside: int = 0
    devices: list[Any] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The metrics' names."""
        return [metric["name"] for metric in self.metrics]

    @property
    def levels(self) -> dict[int, int]:
        """Slots per bin of each rollup, by its length in seconds."""
        return {level: round(level / self.cadence) for level in LEVELS_S if level / self.cadence >= 2}

    def extend(self, schemas: Iterable[dict[str, Any]]) -> None:
        """Add the schemas' new devices and metrics at the end."""
        devices, metrics = set(self.devices), set(self.names)
        for schema in schemas:
            for device in schema["devices"]:
                if device not in devices:
                    devices.add(device)
                    self.devices.append(device)
            for metric in schema["metrics"]:
                if metric["name"] not in metrics:
                    metrics.add(metric["name"])
                    self.metrics.append(metric)

    @property
    def end(self) -> int:
        """The slot from which on samples come from a wrong clock."""
        return self.origin + int(_LONGEST_S / self.cadence)

    def settle(self, times: np.ndarray, counts: np.ndarray) -> None:
        """Choose the origin, once, from the times of the first samples, of which there are so many at each."""
        import numpy as np

        order = np.argsort(times)
        median = times[order][np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)]
        earliest = times[times >= median - 7 * _DAY_S].min()
        unit = math.lcm(_ORIGIN_SLOTS, *self.levels.values())
        self.origin = int((earliest // _DAY_S - 1) * _DAY_S / self.cadence) // unit * unit
        self.first = self.stop = self.origin

    def include(self, samples: Sequence[PackedSamples]) -> None:
        """Leave out samples of wrong clocks and widen [first, stop) to the others."""
        for of_schema in samples:
            self.outside += of_schema.limit(self.origin, self.end)
            if len(of_schema.slots):
                self.widen(int(of_schema.slots.min()), int(of_schema.slots.max()) + 1)

    def widen(self, low: int, high: int) -> None:
        """Widen [first, stop) to the slots [low, high)."""
        empty = self.stop == self.first
        self.first, self.stop = (low, high) if empty else (min(self.first, low), max(self.stop, high))


class PackedSamples:
    """All packed samples of one schema: times float64 [n], slots int64 [n], values float32 [n, devices, metrics].

    Args:
        packed: as `cordee.telemetry.store.unsealed.tail.TailPart` keeps them, in the order of writing.
    """

    def __init__(self, schema: dict[str, Any], packed: Sequence[Packed]) -> None:
        import numpy as np

        self.schema = schema
        self.times: np.ndarray
        self.values: Any
        if len(packed) == 1:
            self.times, self.values = packed[0]
        else:
            self.times = np.concatenate([times for times, _ in packed])
            self.values = np.concatenate([np.asarray(values) for _, values in packed])
        known = np.isfinite(self.times)
        if not known.all():
            self.times, self.values = self.times[known], self.values[known]
        self.slots = np.floor(self.times / schema["cadence"] + 0.5).astype(np.int64)

    def limit(self, low: int, high: int) -> int:
        """Leave out samples outside the slots [low, high); return how many."""
        inside = (self.slots >= low) & (self.slots < high)
        count = len(inside) - int(inside.sum())
        if count:
            self.times, self.slots, self.values = self.times[inside], self.slots[inside], self.values[inside]
        return count

    def paint(self, target: np.ndarray, first: int, devices: dict[Any, int], metrics: dict[str, int]) -> None:
        """Write the samples into `target` (metric, slot from `first`, device); what has no place in it is passed over."""
        import numpy as np

        inside = (self.slots >= first) & (self.slots < first + target.shape[1])
        slots = self.slots[inside] - first
        columns = [(at, devices[device]) for at, device in enumerate(self.schema["devices"]) if device in devices]
        rows = [(at, metrics[m["name"]]) for at, m in enumerate(self.schema["metrics"]) if m["name"] in metrics]
        if not len(slots) or not columns or not rows:
            return
        # The metrics first: a large recording holds many, and all but one would be copied for nothing.
        picked = self.values[:, :, [at for at, _ in rows]]
        if len(columns) < picked.shape[1] or any(at != place for place, (at, _) in enumerate(columns)):
            picked = picked[:, [at for at, _ in columns]]
        picked = (picked if inside.all() else picked[inside]).astype(np.float32, copy=False).transpose(2, 0, 1)
        into_rows, into_columns = np.array([to for _, to in rows]), np.array([to for _, to in columns])
        for layer in _layers(slots):
            index = _index(into_rows, slots[layer], into_columns)
            news = picked[:, layer, :]
            missing = np.isnan(news)
            target[index] = np.where(missing, target[index], news) if missing.any() else news


def group_name(schema: dict[str, Any]) -> str:
    """Return the name of the group that a schema's samples belong to: one group has one cadence."""
    cadence = schema["cadence"]
    return schema["group"] if cadence == 1.0 else f"{schema['group']}-{cadence:g}s"


def rollup(values: np.ndarray, factor: int, statistics: Sequence[str] = STATISTICS) -> np.ndarray:
    """Return float32 (statistic, metric, bin, device) of values (metric, slot, device); the slots are a multiple of `factor`.

    Only where something is missing is the slower way taken that passes over it.
    """
    import numpy as np

    metrics, slots, devices = values.shape
    found = np.empty((len(statistics), metrics, slots // factor, devices), dtype=np.float32)
    for metric in range(metrics):
        bins = values[metric].reshape(slots // factor, factor, devices)
        missing = np.isnan(bins)
        some = bool(missing.any())
        count = np.float32(factor)
        if some:
            count = factor - np.count_nonzero(missing, axis=1).astype(np.float32)
        for at, statistic in enumerate(statistics):
            into = found[at, metric]
            if statistic == "count":
                into[:] = np.where(count > 0, count, np.nan)
            elif statistic == "mean":
                with np.errstate(invalid="ignore", divide="ignore"):
                    into[:] = (
                        np.add.reduce(np.where(missing, 0, bins) if some else bins, axis=1, dtype=np.float64) / count
                    )
            else:
                reduce = (np.fmin if some else np.minimum) if statistic == "min" else (np.fmax if some else np.maximum)
                reduce.reduce(bins, axis=1, out=into)
    return found


@lru_cache(maxsize=1 << 16)
def natural(device: Any) -> tuple[Any, ...]:
    """Return a sort key that puts `local-2` before `local-10` and numbers before names."""
    if isinstance(device, int):
        return (0, device)
    return (1, *[(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", str(device))])


def _index(*places: np.ndarray) -> tuple[Any, ...]:
    """Return the index of all combinations of places: slices where all follow one another, which copies in one piece."""
    import numpy as np

    if all(len(of) and of[-1] - of[0] == len(of) - 1 and (np.diff(of) == 1).all() for of in places):
        return tuple(slice(int(of[0]), int(of[-1]) + 1) for of in places)
    return tuple(np.ix_(*places))


def _layers(slots: np.ndarray) -> list[Any]:
    """Return index lists that cover all samples in the order of writing, none with a slot twice."""
    import numpy as np

    if len(slots) < 2 or (np.diff(slots) > 0).all():
        return [slice(None)]
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn = np.arange(len(ordered)) - np.repeat(begins, np.diff(np.r_[begins, len(ordered)]))
    return [np.sort(order[turn == layer]) for layer in range(int(turn.max()) + 1)]
