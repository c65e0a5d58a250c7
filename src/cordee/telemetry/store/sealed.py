"""The sealed series: a Zarr v3 store `telemetry/sealed.zarr` that xarray and any Zarr reader can open.

    <group>/values        float32 (metric, time, device), NaN = missing; shards of 20 minutes
    <group>/values_5s     float32 (statistic, metric, time_5s, device): mean, min, max, count; also values_60s
    <group>/time, ...     coordinates
    facts.json            what is known of devices, by node and group
    events/table          float64 (column, row): name, attempt, rank, offset, step, time, value
    events/steps          float64 (column, row): name, attempt, step, count, total, low, high, time: the table, thinned

Arrays may be longer than what holds: the `cordee` attribute of the root says what is in, and is replaced last, at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import write_atomically
from cordee.telemetry.store.grids import LEVELS_S, STATISTICS, TURN_SLOTS, Axes

if TYPE_CHECKING:
    import numpy as np

    from cordee.telemetry.store.shards import ShardedArray, Span

STORE = "sealed.zarr"
SCHEMA = "cordee.sealed/2"
_OLDER = "cordee.sealed/1"
EVENT_COLUMNS = ("name", "attempt", "rank", "offset", "step", "time", "value")
STEP_COLUMNS = ("name", "attempt", "step", "count", "total", "low", "high", "time")

# A sealing takes in some minutes at a time: it encodes the chunks they lie in, and writes their shards anew.
_CHUNK_SLOTS = 120
_CHUNK_DEVICES = 1024
_SHARD_DEVICES = 16 * _CHUNK_DEVICES
_SHARD_S = 1200
# Chunk and shard of the rollups, in bins, by the bin's length.
_LEVEL_BINS = {5: (24, 360), 60: (5, 120)}
_EVENT_CHUNK, _EVENT_SHARD = 1 << 16, 1 << 20


@dataclass
class Commit:
    """What the store holds.

    Attributes:
        parts: `{"size", "until"}` of every part that is in, by file name.
        sealed_until: UTC epoch seconds of the newest sample or event, None when there is none.
        groups: axes by group name.
        event_rows: rows of the events table that count.
        event_names: metric names; the table's first column is an index into them.
        watermarks: per attempt and rank (as text; with a + for what was taken beside its channel) the largest event offset
            that is in.
        dropped_events: events that ranks had to drop.
        skipped_bytes: damaged bytes of the block log that were passed over.
        malformed_records: records that made no sense and were passed over.
        shards: the files that hold samples, named below the store.
        step_rows: rows of the table of steps that count; None where sealing began before there was one.
        capped_values: values that were left out because there were too many metric names.
    """

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    sealed_until: float | None = None
    groups: dict[str, Axes] = field(default_factory=dict)
    event_rows: int = 0
    event_names: list[str] = field(default_factory=list)
    watermarks: dict[str, dict[str, int]] = field(default_factory=dict)
    dropped_events: int = 0
    skipped_bytes: int = 0
    malformed_records: int = 0
    shards: list[str] = field(default_factory=list)
    step_rows: int | None = 0
    capped_values: int = 0


def commit_key(telemetry: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the commit does; None when nothing is sealed."""
    try:
        found = os.stat(telemetry / STORE / "zarr.json")
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_commit(telemetry: Path) -> Commit:
    """Return what is sealed; an empty commit when nothing is.

    Raises:
        RunFolderError: the store was written by a newer Cordée or is damaged.
    """
    path = telemetry / STORE / "zarr.json"
    try:
        document = read_json(path, telemetry.parent)["attributes"]["cordee"]
        schema = document.pop("schema")
        if schema == _OLDER:
            document["step_rows"] = None
        elif schema != SCHEMA:
            raise RunFolderError(
                "the sealed telemetry was written by a newer Cordée",
                file=str(path),
                given=schema,
                allowed=SCHEMA,
                next="read it with the version that wrote it, or newer",
            )
        groups = {name: Axes(**axes) for name, axes in document.pop("groups").items()}
        return Commit(groups=groups, **document)
    except (FileNotFoundError, NotADirectoryError):
        return Commit()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"the sealed telemetry cannot be read: {error}", file=str(path)) from error


def write_commit(telemetry: Path, commit: Commit) -> None:
    """Replace what the store says it holds, durably.

    Raises:
        RunFolderError: the disk refuses.
    """
    attributes = {"cordee": {"schema": SCHEMA, **asdict(commit)}}
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    (telemetry / STORE).mkdir(mode=0o700, exist_ok=True)
    write_atomically(telemetry / STORE / "zarr.json", json.dumps(document))


def read_facts(telemetry: Path) -> dict[str, dict[str, Any]]:
    """Return the sealed facts by `node/group`; none when there are none.

    Raises:
        RunFolderError: they are damaged.
    """
    path = telemetry / STORE / "facts.json"
    try:
        known: dict[str, dict[str, Any]] = read_json(path, telemetry.parent)
        return known
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise RunFolderError(f"the sealed facts cannot be read: {error}", file=str(path)) from error


def write_facts(telemetry: Path, facts: dict[str, dict[str, Any]]) -> None:
    """Replace the sealed facts, durably.

    Raises:
        RunFolderError: the disk refuses.
    """
    write_atomically(telemetry / STORE / "facts.json", json.dumps(facts))


class SealedGroup:
    """One group's arrays; indices are absolute slots.

    Args:
        telemetry: the run's `telemetry/` folder.
        name: the group's name.
        axes: what the commit says, or will say.
    """

    def __init__(self, telemetry: Path, name: str, axes: Axes) -> None:
        self.telemetry = telemetry
        self.name = name
        self.axes = axes
        self._path = telemetry / STORE / name
        self._opened: dict[str, ShardedArray] = {}
        self._gone: set[str] = set()

    def read(self, metrics: Sequence[int], first: int, stop: int) -> np.ndarray:
        """Return float32 (metric, slot, device) of the metrics with these indices in the slots [first, stop)."""
        low, high = first - self.axes.origin, stop - self.axes.origin
        return self._read("values", (), metrics, low, high)

    def read_level(self, level: int, statistic: str, metrics: Sequence[int], first: int, stop: int) -> np.ndarray:
        """Return float32 (metric, bin, device) of a rollup in the absolute bins [first, stop)."""
        base, at = self.axes.origin // self.axes.levels[level], STATISTICS.index(statistic)
        return self._read(f"values_{level}s", ((at, at + 1),), metrics, first - base, stop - base)

    def _read(self, name: str, outer: tuple[Span, ...], metrics: Sequence[int], low: int, high: int) -> np.ndarray:
        import numpy as np

        if not self._there(name):
            self._gone.add(name)
            return np.full((len(metrics), high - low, len(self.axes.devices)), np.nan, dtype=np.float32)
        array, spans = self._array(name), ((low, high), (0, len(self.axes.devices)))
        read = [array.read(*outer, (at, at + 1), *spans).reshape(1, high - low, -1) for at in metrics]
        return np.concatenate(read) if read else np.zeros((0, high - low, len(self.axes.devices)), dtype=np.float32)

    def write(self, values: np.ndarray, first: int) -> list[str]:
        """Store float32 (metric, slot, device) from the absolute slot `first`; returns the shards, named below the store."""
        return self._write("values", values, first - self.axes.origin)

    def write_level(self, level: int, values: np.ndarray, first: int) -> list[str]:
        """Store float32 (statistic, metric, bin, device) from the absolute bin `first`, and return the shards."""
        low = first - self.axes.origin // self.axes.levels[level]
        return self._write(f"values_{level}s", values, low)

    def write_coordinates(self) -> None:
        """Store the coordinates and attributes for readers that know nothing of Cordée."""
        import numpy as np

        from cordee.telemetry.store.shards import write_group, write_vector

        axes = self.axes
        attributes = {"cadence_seconds": axes.cadence, "metrics": axes.metrics, "outside_samples": axes.outside}
        write_group(self._path, attributes)
        steps = {"time": axes.cadence, **{f"time_{level}s": n * axes.cadence for level, n in axes.levels.items()}}
        for name, step in steps.items():
            if self._there("values" + name[4:]):
                series = self._array("values" + name[4:])
                times = axes.origin * axes.cadence + np.arange(series.shape[series.dims.index(name)]) * step
                write_vector(self._path / name, times, {"units": "seconds since 1970-01-01T00:00:00Z"})
        for name, labels in (("metric", axes.names), ("device", axes.devices), ("statistic", STATISTICS)):
            whole = all(isinstance(label, int) for label in labels)
            write_vector(self._path / name, np.array(labels, dtype=np.int64) if whole else labels, {})

    def older(self, slot: int) -> dict[str, Path]:
        """Return the files whose samples, or bins of less than a minute, all lie before an absolute slot, by their names below the store."""
        found = {}
        for level in (0, *self.axes.levels):
            name, factor = (f"values_{level}s", self.axes.levels[level]) if level else ("values", 1)
            if level != LEVELS_S[-1] and self._there(name):
                array = self._array(name)
                at = array.dims.index("time" + name[len("values") :])
                for path in array.before(at, (slot - self.axes.origin) // factor):
                    found[f"{self.name}/{name}/{path.relative_to(array.path)}"] = path
        return found

    def damaged(self) -> dict[str, str]:
        """Return what could not be read so far, named below the store, with the reason."""
        found = {f"{self.name}/{name}": "it is not there" for name in self._gone}
        for name, array in self._opened.items():
            found.update({f"{self.name}/{name}/{shard}": reason for shard, reason in array.damaged.items()})
        return found

    def _write(self, name: str, values: np.ndarray, low: int) -> list[str]:
        if not self._there(name):
            self._create(name)
        array = self._array(name)
        starts = (*(0 for _ in values.shape[2:]), low, 0)
        array.grow(*(start + length for start, length in zip(starts, values.shape, strict=True)))
        return [f"{self.name}/{name}/{path.relative_to(array.path)}" for path in array.write(values, *starts)]

    def _there(self, name: str) -> bool:
        return name in self._opened or (self._path / name / "zarr.json").exists()

    def _array(self, name: str) -> ShardedArray:
        from cordee.telemetry.store.shards import ShardedArray

        if name not in self._opened:
            array = self._opened[name] = ShardedArray(self._path / name, self.telemetry.parent)
            if "statistic" in array.dims:  # means have noise in their last bits, in which bitshuffle finds nothing
                array.byte_shuffled = frozenset({STATISTICS.index("mean")})
        return self._opened[name]

    def _create(self, name: str) -> None:
        from cordee.telemetry.store.shards import create_array, write_group

        metrics, devices = len(self.axes.metrics), len(self.axes.devices)
        chunk_d = min(_CHUNK_DEVICES, 1 << max(3, (devices - 1).bit_length()))
        shard_d = chunk_d if devices <= _CHUNK_DEVICES else _SHARD_DEVICES
        level = int(name[len("values_") : -1]) if "_" in name else 0
        chunk_t, shard_t = _LEVEL_BINS.get(level) or (_CHUNK_SLOTS, max(TURN_SLOTS, _shard_slots(self.axes.cadence)))
        outer = (len(STATISTICS),) if level else ()
        write_group(self._path, {})
        create_array(
            self._path / name,
            shape=(*outer, metrics, 0, devices),
            chunks=(*(1 for _ in outer), 1, chunk_t, chunk_d),
            shards=(*outer, -(-metrics // 8) * 8, shard_t, shard_d),
            dims=(*(("statistic",) if level else ()), "metric", "time" + name[len("values") :], "device"),
            transposed=True,
        )


def _shard_slots(cadence: float) -> int:
    """Return how many slots a shard needs that holds 20 minutes, in whole chunks."""
    return -(-int(_SHARD_S / cadence) // _CHUNK_SLOTS) * _CHUNK_SLOTS


def read_events(telemetry: Path, columns: Sequence[str], start: int, stop: int) -> np.ndarray:
    """Return float64 (column, row) of the events table."""
    return _read_table(telemetry, "table", EVENT_COLUMNS, columns, start, stop)


def read_steps(telemetry: Path, rows: int, name: int | None = None) -> np.ndarray:
    """Return the table of steps, of all metrics or of the one at this place in the list of names."""
    table = _read_table(telemetry, "steps", STEP_COLUMNS, STEP_COLUMNS, 0, rows)
    return table if name is None else table[:, table[0] == name]


def write_steps(telemetry: Path, table: np.ndarray, start: int) -> None:
    """Store rows of the table of steps from row `start`, as `write_events` does."""
    _write_table(telemetry, "steps", STEP_COLUMNS, table, start)


def write_events(telemetry: Path, table: np.ndarray, start: int) -> None:
    """Store float64 (column, row) from row `start`; rows behind it that an interrupted sealing left are overwritten."""
    _write_table(telemetry, "table", EVENT_COLUMNS, table, start)


def _read_table(
    telemetry: Path, name: str, known: Sequence[str], columns: Sequence[str], start: int, stop: int
) -> np.ndarray:
    import numpy as np

    path = telemetry / STORE / "events" / name
    if stop <= start or not (path / "zarr.json").exists():
        return np.zeros((len(columns), 0))
    from cordee.telemetry.store.shards import ShardedArray

    array = ShardedArray(path, telemetry.parent)
    places = [known.index(column) for column in columns]
    return np.concatenate([array.read((at, at + 1), (start, stop)) for at in places])


def _write_table(telemetry: Path, name: str, columns: Sequence[str], table: np.ndarray, start: int) -> None:
    from cordee.telemetry.store.shards import ShardedArray, create_array, write_group

    path = telemetry / STORE / "events" / name
    if not (path / "zarr.json").exists():
        write_group(path.parent, {"columns": list(EVENT_COLUMNS), "step_columns": list(STEP_COLUMNS)})
        create_array(
            path,
            shape=(len(columns), 0),
            chunks=(1, _EVENT_CHUNK),
            shards=(len(columns), _EVENT_SHARD),
            dims=("column", "row"),
            dtype="float64",
        )
    array = ShardedArray(path, telemetry.parent)
    array.grow(len(columns), start + table.shape[1])
    array.write(table, 0, start)
