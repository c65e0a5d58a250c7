"""The part of the telemetry that is not sealed, as raw rows; standard library only, so that live views start at once."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.telemetry.node.blocklog import (
    BESIDE_CHANNEL,
    EVENTS,
    FACTS,
    GRID,
    GRIDS,
    RECORD,
    SCHEMA,
    BlockReader,
    decode_json,
    list_parts,
)
from cordee.telemetry.store.model import LoggedEvent

if TYPE_CHECKING:
    import numpy as np

    from cordee.telemetry.store.grids import Packed
    from cordee.telemetry.store.series import Names
    from cordee.telemetry.store.unsealed.spool import Spool
    from cordee.telemetry.store.unsealed.window import Window


_GRID_HEAD = struct.Struct("<IBI")  # of a record, and the schema's id
_GROUP = re.compile(r"^[A-Za-z0-9_]+$")
_RESERVED = "events"
_SPOOLED_BYTES = 100_000_000


class TailPart:
    """The rows of one part of the block log, read further at every `read`.

    Args:
        known: schemas by the bytes that they are written as, which all parts repeat; read once for all parts that share it.

    Attributes:
        schemas: schema documents by id.
        rows: per schema id the samples in the order of writing, each time f64 and values f32 (f64 in older logs) [devices x
            metrics]; see `cordee.telemetry.store.unsealed.rows`.
        events: user events in the order of writing.
        packed: instead of rows, by schema id, pairs of times f64 [n] and values f32 [n, devices, metrics]; see `pack`.
        facts: FACTS documents in the order of writing.
        dropped_events: events that ranks had to drop.
        skipped_bytes: damaged bytes that were passed over.
        malformed_records: records that make no sense, passed over.
    """

    def __init__(self, path: Path, known: dict[bytes, dict[str, Any]] | None = None) -> None:
        self.path = path
        self.offset = 0
        self._known = {} if known is None else known
        self.skipped_bytes = 0
        self.malformed_records = 0
        self.dropped_events = 0
        self.schemas: dict[int, dict[str, Any]] = {}
        self.rows: dict[int, list[bytes]] = {}
        self.packed: dict[int, list[Packed]] = {}
        self.events: list[LoggedEvent] = []
        self.facts: list[dict[str, Any]] = []

    def read(self) -> None:
        """Take what has been written since the last time.

        Raises:
            OSError: the file cannot be read, for instance because it was sealed and dropped.
        """
        reader = BlockReader(self.path, self.offset)
        for _, _, payload in reader:
            self._take_all(payload)
        self.offset = reader.offset
        self.skipped_bytes += reader.skipped_bytes

    def pack(self, spool: Spool | None = None) -> None:
        """Keep the rows in single precision, each metric in one piece since it is read alone; in a file where one is given."""
        import numpy as np

        from cordee.telemetry.store.unsealed.rows import decode_rows

        for identity in [identity for identity in self.rows if identity in self.schemas]:
            schema = self.schemas[identity]
            times, rows = decode_rows(self.rows.pop(identity), len(schema["devices"]), len(schema["metrics"]))
            values = rows.transpose(2, 0, 1).astype(np.float32, order="C")
            kept = values.transpose(1, 2, 0) if spool is None else spool.put(values)
            self.packed.setdefault(identity, []).append((times.copy(), kept))

    def _take_all(self, payload: bytes) -> None:
        """Take the records of a block. There are millions of samples in a large recording: they get no call of their own."""
        rows, unpack, size, at = self.rows, _GRID_HEAD.unpack_from, len(payload), 0
        last = size - _GRID_HEAD.size
        while at < size:
            if at <= last:
                length, kind, identity = unpack(payload, at)
                if kind in GRIDS and length >= 4 and at + 5 + length <= size:
                    row = payload[at + 9 : at + 5 + length]
                    at += 5 + length
                    if identity in rows:
                        rows[identity].append(row)
                    else:
                        rows[identity] = [row]
                    continue
            at = self._take_other(payload, at)

    def _take_other(self, payload: bytes, at: int) -> int:
        """Take a record that is no sample, or makes no sense, and return where the next one begins."""
        begin, size = at + RECORD.size, len(payload)
        length, kind = RECORD.unpack_from(payload, at) if begin <= size else (size, GRID)
        try:
            if begin + length > size or kind in GRIDS:
                raise ValueError("the record ends before it should")
            self._take(kind, payload[begin : begin + length])
        except (ValueError, KeyError, TypeError, struct.error):
            self.malformed_records += 1
        end: int = begin + length
        return end

    def _take(self, kind: int, body: bytes) -> None:
        if kind == SCHEMA:
            document = self._known.get(body)
            if document is None:
                document = decode_json(body)
                _check_schema(document)
                self._known[body] = document
            self.schemas[document["id"]] = document
        elif kind == FACTS:
            document = decode_json(body)
            _check_facts(document)
            self.facts.append(document)
        elif kind == EVENTS:
            document = decode_json(body)
            attempt, rank = int(document["attempt"]), int(document["rank"])
            self.dropped_events += int(document["dropped"])
            for offset, moment, step, values in document["events"]:
                numbers = {str(name): float(value) for name, value in values.items()}
                whole = None if step is None else int(step)
                self.events.append(LoggedEvent(attempt, rank, int(offset), float(moment), whole, numbers))


class UnsealedTail:
    """All parts that are not sealed.

    Args:
        folder: the run's `telemetry/` folder.
        packed: keep rows packed instead of in windows; see `TailPart.pack`.

    Attributes:
        windows: the samples by group; empty when they are packed.
        tables: user events by part, each as tables of `cordee.telemetry.store.series` in the order of writing; `names`: their metrics.
    """

    def __init__(self, folder: Path, *, packed: bool = False) -> None:
        self._folder = folder
        self._packed = packed
        self._spool: Spool | None = None
        self._parts: dict[Path, TailPart] = {}
        self._known: dict[bytes, dict[str, Any]] = {}
        self.windows: dict[str, Window] = {}
        self.tables: dict[Path, list[np.ndarray]] = {}
        self.names: Names | None = None

    def refresh(self, sealed: dict[str, Any]) -> None:
        """Read on; parts named in `sealed` with their present size are left out.

        Raises:
            FileNotFoundError: a part was dropped meanwhile: what is sealed has to be looked up again.
        """
        paths = [path for _, _, path in list_parts(self._folder) if not is_sealed(path, sealed)]
        gone = [path for path in self._parts if path not in set(paths)]
        for window in self.windows.values() if gone else ():
            window.drop(gone)
        for path in gone:
            self.tables.pop(path, None)
        self._parts = {path: self._parts.get(path) or TailPart(path, self._known) for path in paths}
        if self._packed and self._spool is None and sum(path.stat().st_size for path in paths) > _SPOOLED_BYTES:
            from cordee.telemetry.store.unsealed.spool import Spool

            self._spool = Spool()
        for part in self._parts.values():
            part.read()
            if self._packed and part.rows:
                part.pack(self._spool)
            elif part.rows:
                take_rows(self.windows, part)
            if part.events:
                self._take_events(part)

    @property
    def parts(self) -> list[TailPart]:
        """The parts, oldest first."""
        return list(self._parts.values())

    @property
    def schemas(self) -> dict[int, dict[str, Any]]:
        """All schemas by id."""
        return merged_schemas(self.parts)

    def _take_events(self, part: TailPart) -> None:
        from cordee.telemetry.store.series import Names, table_of

        self.names = self.names or Names()
        self.tables.setdefault(part.path, []).append(table_of(part.events, self.names))
        part.events.clear()


class LiveEvents:
    """New user events at each call, each once; what was sealed before the first call is left out.

    Args:
        folder: the run's `telemetry/` folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[Path, TailPart] = {}
        self._seen: dict[tuple[int, int, bool], int] = {}

    def read(self) -> list[LoggedEvent]:
        """Return the events written since the last call."""
        news = []
        for _, _, path in list_parts(self._folder):
            part = self._parts.setdefault(path, TailPart(path))
            try:
                part.read()
            except OSError:
                continue
            for event in part.events:
                stream = event.attempt, event.rank, event.offset >= BESIDE_CHANNEL
                if event.offset > self._seen.get(stream, -1):
                    self._seen[stream] = event.offset
                    news.append(event)
            part.events.clear()
            part.rows.clear()
        return news


def _check_schema(schema: dict[str, Any]) -> None:
    """Refuse a schema whose grids could not be placed; a group's name becomes a folder's name."""
    if not _GROUP.match(schema["group"]) or schema["group"] == _RESERVED:
        raise ValueError("no name for a group")
    if not 0.001 <= schema["cadence"] <= 86400.0:
        raise ValueError("no cadence")
    if not all(isinstance(device, (int, str)) for device in schema["devices"]):
        raise ValueError("no device")
    if not all(isinstance(metric["name"], str) for metric in schema["metrics"]) or not schema["metrics"]:
        raise ValueError("no metrics")


def _check_facts(facts: dict[str, Any]) -> None:
    """Refuse facts that could not be merged."""
    if not all(isinstance(facts[key], str) for key in ("node", "group")):
        raise ValueError("no node or group")
    if not all(isinstance(about, dict) for about in facts["devices"].values()):
        raise ValueError("no devices")
    if not all(isinstance(reason, str) for reason in facts["missing"].values()):
        raise ValueError("no reasons")
    float(facts["time"]), list(facts["remarks"])


def take_rows(windows: dict[str, Window], part: TailPart) -> dict[str, np.ndarray]:
    """Move a part's rows into the windows of their groups and return their times by group.

    Rows without a schema stay: it may yet come.
    """
    from cordee.telemetry.store.grids import group_name
    from cordee.telemetry.store.unsealed.window import Window

    groups: dict[str, dict[int, list[bytes]]] = {}
    for identity in [identity for identity in part.rows if identity in part.schemas]:
        schema = part.schemas[identity]
        name = group_name(schema)
        windows.setdefault(name, Window(schema["cadence"])).place(identity, schema)
        groups.setdefault(name, {})[identity] = part.rows.pop(identity)
    return {name: windows[name].take(rows, part.path) for name, rows in groups.items()}


def is_sealed(path: Path, sealed: dict[str, Any]) -> bool:
    """Return whether a part is sealed as far as it goes now; False also when it is gone, so that reading it says so."""
    try:
        return path.name in sealed and sealed[path.name]["size"] == path.stat().st_size
    except OSError:
        return False


def merged_schemas(parts: Iterable[TailPart]) -> dict[int, dict[str, Any]]:
    """Return the schemas of all parts by id."""
    schemas: dict[int, dict[str, Any]] = {}
    for part in parts:
        schemas.update(part.schemas)
    return schemas


def merged_packed(parts: Iterable[TailPart]) -> dict[int, list[Packed]]:
    """Return the packed samples of all parts by schema id, in the order of writing."""
    packed: dict[int, list[Packed]] = {}
    for part in parts:
        for schema, of_schema in part.packed.items():
            packed.setdefault(schema, []).extend(of_schema)
    return packed
