"""The sealed series: a Zarr v3 store `telemetry/sealed.zarr` that xarray and any Zarr reader can open.

    <group>/values        float32 (metric, time, device), NaN = missing; shards of 20 minutes
    <group>/values_5s     float32 (statistic, metric, time_5s, device): mean, min, max, count; also values_60s
    <group>/time, ...     coordinates
    facts.json            what is known of devices, by node and group
    events/table          float64 (column, row): name, attempt, rank, offset, step, time, value

Arrays may be longer than what holds: the `cordee` attribute of the root says what is in, and is replaced last, at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.errors import RunFolderError
from cordee.runs.folder import write_atomically
from cordee.runs.grids import STATISTICS, TURN_SLOTS, Axes

if TYPE_CHECKING:
    import numpy as np

STORE = "sealed.zarr"
SCHEMA = "cordee.sealed/1"
EVENT_COLUMNS = ("name", "attempt", "rank", "offset", "step", "time", "value")

# A sealing takes in some minutes at a time: it encodes the chunks they lie in, and writes their shards anew.
_CHUNK_SLOTS = 120
_CHUNK_DEVICES = 1024
_SHARD_DEVICES = 16 * _CHUNK_DEVICES
_SHARD_S = 1200
# Chunk and shard of the rollups, in bins, by the bin's length.
_LEVEL_BINS = {5: (120, 360), 60: (60, 120)}
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
        document = json.loads(path.read_bytes())["attributes"]["cordee"]
        schema = document.pop("schema")
        if schema != SCHEMA:
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
        known: dict[str, dict[str, Any]] = json.loads(path.read_bytes())
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
        self._opened: dict[str, Any] = {}

    def read(self, metrics: Sequence[int], first: int, stop: int) -> np.ndarray:
        """Return float32 (metric, slot, device) of the metrics with these indices in the slots [first, stop)."""
        low, high = first - self.axes.origin, stop - self.axes.origin
        return _read(self._array("values"), ((metrics, low, high, len(self.axes.devices)),))

    def read_level(self, level: int, statistic: str, metrics: Sequence[int], first: int, stop: int) -> np.ndarray:
        """Return float32 (metric, bin, device) of a rollup in the absolute bins [first, stop)."""
        base = self.axes.origin // self.axes.levels[level]
        wanted = (metrics, first - base, stop - base, len(self.axes.devices))
        return _read(self._array(f"values_{level}s"), (STATISTICS.index(statistic), wanted))

    def write(self, values: np.ndarray, first: int) -> None:
        """Store float32 (metric, slot, device) from the absolute slot `first`."""
        array = self._array("values", create=True)
        low = first - self.axes.origin
        shape = (len(self.axes.metrics), max(array.shape[1], low + values.shape[1]), len(self.axes.devices))
        _grow(array, shape)
        array[:, low : low + values.shape[1], : values.shape[2]] = values

    def write_level(self, level: int, values: np.ndarray, first: int) -> None:
        """Store float32 (statistic, metric, bin, device) from the absolute bin `first`."""
        array = self._array(f"values_{level}s", create=True)
        low = first - self.axes.origin // self.axes.levels[level]
        stop = max(array.shape[2], low + values.shape[2])
        _grow(array, (len(STATISTICS), len(self.axes.metrics), stop, len(self.axes.devices)))
        array[:, :, low : low + values.shape[2], : values.shape[3]] = values

    def write_coordinates(self) -> None:
        """Store the coordinates and attributes for readers that know nothing of Cordée."""
        import numpy as np
        import zarr

        axes = self.axes
        group = zarr.open_group(str(self._path), mode="a", zarr_format=3)
        group.attrs.update({"cadence_seconds": axes.cadence, "metrics": axes.metrics, "outside_samples": axes.outside})
        steps = {"time": axes.cadence, **{f"time_{level}s": n * axes.cadence for level, n in axes.levels.items()}}
        for name, step in steps.items():
            series = group["values" + name[4:]]
            length = series.shape[series.metadata.dimension_names.index(name)]
            times = axes.origin * axes.cadence + np.arange(length) * step
            _coordinate(group, name, times, {"units": "seconds since 1970-01-01T00:00:00Z"})
        for name, labels in (("metric", axes.names), ("device", axes.devices), ("statistic", STATISTICS)):
            whole = all(isinstance(label, int) for label in labels)
            data = np.array(labels if whole else [str(label) for label in labels], dtype=np.int64 if whole else object)
            _coordinate(group, name, data, {})

    def _array(self, name: str, *, create: bool = False) -> Any:
        import zarr

        if not create:
            if name not in self._opened:
                self._opened[name] = zarr.open_array(str(self._path / name), mode="r", zarr_format=3)
            return self._opened[name]
        if (self._path / name / "zarr.json").exists():
            return zarr.open_array(str(self._path / name), mode="r+", zarr_format=3)
        group = zarr.open_group(str(self._path), mode="a", zarr_format=3)
        metrics, devices = len(self.axes.metrics), len(self.axes.devices)
        chunk_d = min(_CHUNK_DEVICES, 1 << max(3, (devices - 1).bit_length()))
        shard_d = chunk_d if devices <= _CHUNK_DEVICES else _SHARD_DEVICES
        shard_m = -(-metrics // 8) * 8
        level = int(name[len("values_") : -1]) if "_" in name else 0
        chunk_t, shard_t = _LEVEL_BINS.get(level) or (_CHUNK_SLOTS, max(TURN_SLOTS, _shard_slots(self.axes.cadence)))
        outer = (len(STATISTICS),) if level else ()
        dims = (("statistic",) if level else ()) + ("metric", "time" + name[len("values") :], "device")
        return _create(
            group,
            name,
            shape=(*outer, metrics, 0, devices),
            chunks=(*(1 for _ in outer), 1, chunk_t, chunk_d),
            shards=(*outer, shard_m, shard_t, shard_d),
            dtype="float32",
            dims=dims,
            transposed=True,
        )


def _shard_slots(cadence: float) -> int:
    """Return how many slots a shard needs that holds 20 minutes, in whole chunks."""
    return -(-int(_SHARD_S / cadence) // _CHUNK_SLOTS) * _CHUNK_SLOTS


def read_events(telemetry: Path, columns: Sequence[str], start: int, stop: int) -> np.ndarray:
    """Return float64 (column, row) of the events table."""
    import numpy as np
    import zarr

    if stop <= start:
        return np.zeros((len(columns), 0))
    array = zarr.open_array(str(telemetry / STORE / "events" / "table"), mode="r", zarr_format=3)
    return np.stack([array[EVENT_COLUMNS.index(column), start:stop] for column in columns])


def write_events(telemetry: Path, table: np.ndarray, start: int) -> None:
    """Store float64 (column, row) from row `start`; rows behind it that an interrupted sealing left are overwritten."""
    import zarr

    path = telemetry / STORE / "events"
    group = zarr.open_group(str(path), mode="a", zarr_format=3)
    if (path / "table" / "zarr.json").exists():
        array = zarr.open_array(str(path / "table"), mode="r+", zarr_format=3)
    else:
        columns = len(EVENT_COLUMNS)
        array = _create(
            group,
            "table",
            shape=(columns, 0),
            chunks=(1, _EVENT_CHUNK),
            shards=(columns, _EVENT_SHARD),
            dtype="float64",
            dims=("column", "row"),
        )
        group.attrs["columns"] = list(EVENT_COLUMNS)
    _grow(array, (len(EVENT_COLUMNS), start + table.shape[1]))
    array[:, start : start + table.shape[1]] = table


def _create(group: Any, name: str, *, dims: tuple[str, ...], transposed: bool = False, **layout: Any) -> Any:
    """Make an array; `transposed`: within a chunk a device's samples follow one another, which compresses better."""
    from zarr.codecs import BloscCodec, TransposeCodec

    outer = range(len(dims) - 2)
    filters = [TransposeCodec(order=(*outer, len(dims) - 1, len(dims) - 2))] if transposed else None
    compressor = BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle")
    return group.create_array(
        name,
        fill_value=float("nan"),
        filters=filters,
        compressors=compressor,
        dimension_names=dims,
        overwrite=True,
        **layout,
    )


def _grow(array: Any, shape: tuple[int, ...]) -> None:
    wider = tuple(max(old, new) for old, new in zip(array.shape, shape, strict=True))
    if wider != array.shape:
        array.resize(wider)


def _coordinate(group: Any, name: str, data: np.ndarray, attributes: dict[str, Any]) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns that its text type has no final specification
        array = group.create_array(
            name,
            shape=data.shape,
            dtype=str if data.dtype == object else data.dtype,
            chunks=(max(1, len(data)),),
            dimension_names=(name,),
            attributes=attributes,
            overwrite=True,
        )
        array[:] = data


def _read(array: Any, selection: tuple[Any, ...]) -> np.ndarray:
    import numpy as np

    *outer, (metrics, low, high, devices) = selection
    result = np.full((len(metrics), high - low, devices), np.nan, dtype=np.float32)
    present = array.shape[len(outer) :]
    bottom, top = max(low, 0), min(high, present[1])
    if top <= bottom:
        return result
    for row, metric in enumerate(metrics):
        if metric < present[0]:
            known = array[(*outer, metric, slice(bottom, top), slice(0, devices))]
            result[row, bottom - low : top - low, : known.shape[1]] = known
    return result
