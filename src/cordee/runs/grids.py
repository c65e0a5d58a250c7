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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

SHARD_SLOTS = 3600
LEVELS_S = (5, 60)
STATISTICS = ("mean", "min", "max", "count")

_DAY_S = 86400
_LONGEST_S = 400 * _DAY_S


@dataclass
class Axes:
    """What the axes of a group mean; devices and metrics are only ever added.

    Attributes:
        cadence: seconds per slot.
        origin: the absolute slot of index 0; a multiple of every rollup's and of the shard's length.
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

    def settle(self, samples: Sequence[Samples]) -> None:
        """Choose the origin, once, from the first samples."""
        import numpy as np

        times = np.concatenate([of_schema.times for of_schema in samples])
        earliest = times[times >= np.median(times) - 7 * _DAY_S].min()
        unit = math.lcm(SHARD_SLOTS, *self.levels.values())
        self.origin = int((earliest // _DAY_S - 1) * _DAY_S / self.cadence) // unit * unit
        self.first = self.stop = self.origin

    def include(self, samples: Sequence[Samples]) -> None:
        """Leave out samples of wrong clocks and widen [first, stop) to the others."""
        end = self.origin + int(_LONGEST_S / self.cadence)
        empty = self.stop == self.first
        for of_schema in samples:
            self.outside += of_schema.limit(self.origin, end)
            if len(of_schema.slots):
                low, high = int(of_schema.slots.min()), int(of_schema.slots.max()) + 1
                self.first, self.stop = (low, high) if empty else (min(self.first, low), max(self.stop, high))
                empty = False


class Packed(NamedTuple):
    """Samples in single precision: times float64 [n], values float32 [metrics, n, devices]."""

    times: np.ndarray
    values: np.ndarray


class Samples:
    """All samples of one schema: times float64 [n], slots int64 [n], values float64 [n, devices, metrics].

    Args:
        rows: as `cordee.runs.tail.Part` keeps them.
        packed: those that it keeps packed, which came before; values are float32 where there are any.
    """

    def __init__(self, schema: dict[str, Any], rows: Sequence[bytes], packed: Sequence[Packed] = ()) -> None:
        import numpy as np

        self.schema = schema
        shape = (len(schema["devices"]), len(schema["metrics"]))
        kind = np.dtype([("time", "<f8"), ("values", "<f8", shape)])
        records = np.frombuffer(b"".join(row for row in rows if len(row) == kind.itemsize), dtype=kind)
        times, values = records["time"], records["values"]
        if packed:
            more = [Packed(times, np.moveaxis(values, 2, 0).astype(np.float32))] if len(times) else []
            pieces = [*packed, *more]
            times = np.concatenate([piece.times for piece in pieces]) if len(pieces) > 1 else pieces[0].times
            blocks = [piece.values for piece in pieces]
            values = np.moveaxis(np.concatenate(blocks, axis=1) if len(pieces) > 1 else blocks[0], 0, 2)
        if not np.isfinite(times).all():
            times, values = times[np.isfinite(times)], values[np.isfinite(times)]
        self.times, self.values = times, values
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
        values = np.moveaxis(self.values, 2, 0)[[at for at, _ in rows]]  # few rows of many first: it copies them
        picked = values[:, inside][:, :, [at for at, _ in columns]].astype(np.float32)
        into_rows = np.array([to for _, to in rows])[:, None, None]
        into_columns = np.array([to for _, to in columns])[None, None, :]
        for layer in _layers(slots):
            index = (into_rows, slots[layer][None, :, None], into_columns)
            news = picked[:, layer, :]
            missing = np.isnan(news)
            target[index] = np.where(missing, target[index], news) if missing.any() else news


def group_name(schema: dict[str, Any]) -> str:
    """Return the name of the group that a schema's samples belong to: one group has one cadence."""
    cadence = schema["cadence"]
    return schema["group"] if cadence == 1.0 else f"{schema['group']}-{cadence:g}s"


def by_group(schemas: dict[int, dict[str, Any]], rows: dict[int, list[bytes]]) -> dict[str, list[Samples]]:
    """Return the samples per group; rows whose schema is unknown are passed over."""
    groups: dict[str, list[Samples]] = {}
    for identity, of_schema in rows.items():
        if identity in schemas:
            samples = Samples(schemas[identity], of_schema)
            if len(samples.times):
                groups.setdefault(group_name(samples.schema), []).append(samples)
    return groups


def rollup(values: np.ndarray, factor: int) -> np.ndarray:
    """Return (statistic, metric, bin, device) of values (metric, slot, device); the slots are a multiple of `factor`."""
    import numpy as np

    metrics, slots, devices = values.shape
    bins = values.reshape(metrics, slots // factor, factor, devices)
    count = np.count_nonzero(~np.isnan(bins), axis=2)
    total = np.nansum(bins, axis=2, dtype=np.float64)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    low, high = np.fmin.reduce(bins, axis=2), np.fmax.reduce(bins, axis=2)
    return np.stack([mean.astype(np.float32), low, high, np.where(count > 0, count, np.nan).astype(np.float32)])


@lru_cache(maxsize=1 << 16)
def natural(device: Any) -> tuple[Any, ...]:
    """Return a sort key that puts `local-2` before `local-10` and numbers before names."""
    if isinstance(device, int):
        return (0, device)
    return (1, *[(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", str(device))])


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
