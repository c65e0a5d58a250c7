"""The block log: telemetry's truth. Append-only parts of framed blocks, each holding records as the agents made them.

A part is `telemetry/blocks-<epoch>-<part>.log`: blocks of a 20-byte header (magic, payload length, CRC-32 over length,
sequence and payload, sequence) and a payload. A payload is whole records: `<I B` (body length, kind) and a body.

    kind 1 SCHEMA   UTF-8 JSON: id, node, group, cadence, devices, metrics, attempt
    kind 2 GRID64   `<I d` (schema id, UTC epoch seconds), float64 LE [devices x metrics], NaN = missing: in older logs
    kind 3 EVENTS   UTF-8 JSON: node, rank, attempt, dropped, events [[offset, UTC seconds, step or null, {name: value}]]
    kind 4 FACTS    UTF-8 JSON: node, group, time, devices {device: {key: value}}, missing {metric: reason}, remarks
    kind 5 GRID     as kind 2 with float32
    kind 6 HEALTH   from the sampler of GPUs to its agent, in no log: UTF-8 JSON: gpus [what the driver says], ranks {UUID: [rank]},
                    xids [[UUID, number]]

Every part starts with the schemas known so far, so that it can be read alone. Readers pass over unknown kinds.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import zlib
from array import array
from collections import deque
from pathlib import Path
from typing import Any, Deque, Iterable, Iterator, Optional, Sequence, Union

from cordee.core.clock import monotonic
from cordee.machine.foreign_files import parse_json, regular_below
from cordee.runs.disk import DISK, Disk

SCHEMA, GRID64, EVENTS, FACTS, GRID, HEALTH = 1, 2, 3, 4, 5, 6
GRIDS = frozenset((GRID, GRID64))

# Offsets of events from here on are not places in a rank's channel: what was read or received beside it has its own.
BESIDE_CHANNEL = 1 << 50
# Metric names that are kept: of one rank, by its agent; of one run, by its readers.
MOST_RANK_NAMES = 2_000
MOST_RUN_NAMES = 20_000

MAGIC = b"CoBk"
BLOCK_BYTES = 256 << 10
KEEP_BYTES = 8 << 20
FLUSH_AFTER_S = 2.0
SYNC_AFTER_S = 5.0
SYNC_BYTES = 4 << 20
RETRY_AFTER_S = 0.5

_MAX_PAYLOAD_BYTES = 64 << 20
_BLOCK = struct.Struct("<4sIIQ")
_CHECKED = struct.Struct("<IQ")
RECORD = struct.Struct("<IB")
_GRID = struct.Struct("<Id")
_PART = re.compile(r"^blocks-(\d+)-(\d+)\.log$")
_SEARCH_BYTES = 1 << 20
_MOST_SCHEMAS = 64
# The last schema of each node and group: samplers ask for the same one at every sample.
_LAST_SCHEMAS: dict[tuple[str, str], tuple[Any, list[dict[str, Any]], tuple[int, bytes]]] = {}


def encode_record(kind: int, body: bytes) -> bytes:
    """Return a record of a kind."""
    return RECORD.pack(len(body), kind) + body


def encode_schema(
    node: str,
    group: str,
    cadence: float,
    devices: Sequence[Union[str, int]],
    metrics: Sequence[dict[str, Any]],
    attempt: Optional[int] = None,
) -> tuple[int, bytes]:
    """Return (schema id, record) for grids of [devices x metrics]; the id is the same wherever it is computed.

    Args:
        node: the node that measures.
        group: `node`, `rank` or another set of devices measured together.
        cadence: seconds between samples.
        devices: names or, for ranks, global rank numbers; the rows of every grid.
        metrics: `{"name", "unit", "source"}` each; the columns of every grid.
        attempt: the attempt that the devices belong to, if they belong to one.
    """
    asked = (float(cadence), list(devices), attempt)
    last = _LAST_SCHEMAS.get((node, group))
    if last is not None and last[0] == asked and last[1] == metrics:
        return last[2]
    document: dict[str, Any] = {
        "node": node,
        "group": group,
        "cadence": float(cadence),
        "devices": list(devices),
        "metrics": list(metrics),
        "attempt": attempt,
    }
    schema = zlib.crc32(_compact(document))
    encoded = schema, encode_record(SCHEMA, _compact(dict(document, id=schema)))
    if len(_LAST_SCHEMAS) >= _MOST_SCHEMAS:
        _LAST_SCHEMAS.clear()
    _LAST_SCHEMAS[node, group] = asked, [dict(metric) for metric in metrics], encoded
    return encoded


def encode_grid(schema: int, moment: float, values: Union[Sequence[float], bytes]) -> bytes:
    """Return the record of one sample: values [devices x metrics], flat, device by device, taken at UTC `moment`.

    Args:
        values: numbers, or the bytes of float32 LE. What single precision cannot hold becomes infinite.
    """
    if not isinstance(values, (bytes, bytearray, memoryview)):
        single = array("f", values)
        if sys.byteorder == "big":
            single.byteswap()
        values = single.tobytes()
    return encode_record(GRID, _GRID.pack(schema, moment) + values)


def encode_events(node: str, rank: int, attempt: int, dropped: int, events: Iterable[Sequence[Any]]) -> bytes:
    """Return the record of user events `(offset, UTC seconds, step or None, {name: value})` of one rank.

    `dropped` counts the events that the rank could not store since the last record.
    """
    document = {"node": node, "rank": rank, "attempt": attempt, "dropped": dropped, "events": list(events)}
    return encode_record(EVENTS, json.dumps(document, separators=(",", ":")).encode())


def encode_facts(
    node: str,
    group: str,
    moment: float,
    devices: dict[str, dict[str, Any]],
    missing: dict[str, str],
    remarks: Sequence[str] = (),
) -> bytes:
    """Return the record of what is known of a group's devices on one node; a later one adds to it, key by key.

    Args:
        moment: UTC epoch seconds.
        devices: by the device's name in grids (ranks as text) what it is: of a GPU `model`, `index`, `uuid`, `parent`
            (a MIG instance's GPU), `memory_bytes`, `ranks`, `shared` and the like.
        missing: why a metric of the group is not measured, or not any more, by its name; empty: it is again.
        remarks: sentences that the reader of these samples should know.
    """
    document = {"node": node, "group": group, "time": moment, "devices": devices, "missing": missing}
    return encode_record(FACTS, _compact(dict(document, remarks=list(remarks))))


def merge_facts(known: dict[str, dict[str, Any]], news: dict[str, Any]) -> None:
    """Add a FACTS document to the facts by `node/group`, each of the same shape as a document."""
    place = known.setdefault(
        f"{news['node']}/{news['group']}",
        {"node": news["node"], "group": news["group"], "devices": {}, "missing": {}, "remarks": []},
    )
    place["time"] = news["time"]
    for device, about in news["devices"].items():
        place["devices"].setdefault(device, {}).update(about)
    for metric, reason in news["missing"].items():
        if reason:
            place["missing"][metric] = reason
        else:
            place["missing"].pop(metric, None)
    place["remarks"] += [remark for remark in news["remarks"] if remark not in place["remarks"]]


def iter_records(payload: Union[bytes, memoryview]) -> Iterator[tuple[int, memoryview]]:
    """Yield (kind, body) of each record.

    Raises:
        ValueError: the payload ends inside a record.
    """
    view = memoryview(payload)
    at, size = 0, len(view)
    while at < size:
        if size - at < RECORD.size:
            raise ValueError("the payload ends inside a record's header")
        length, kind = RECORD.unpack_from(view, at)
        at += RECORD.size
        if length > size - at:
            raise ValueError("the payload ends inside a record's body")
        yield kind, view[at : at + length]
        at += length


def decode_json(body: Union[bytes, memoryview]) -> dict[str, Any]:
    """Return the document of a SCHEMA or EVENTS body."""
    document: dict[str, Any] = parse_json(bytes(body))
    return document


def decode_grid(body: memoryview, kind: int = GRID) -> tuple[int, float, array]:
    """Return (schema id, UTC epoch seconds, values [devices x metrics], flat) of a GRID or GRID64 body."""
    schema, moment = _GRID.unpack_from(body)
    values = array("f" if kind == GRID else "d")
    values.frombytes(bytes(body[_GRID.size :]))
    return schema, moment, values


def list_parts(folder: Path) -> list[tuple[int, int, Path]]:
    """Return (epoch, part, path) of the parts in a `telemetry/` folder, oldest first; none when there is no folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    matches = (_PART.match(name) for name in names)
    return sorted((int(match.group(1)), int(match.group(2)), folder / match.group(0)) for match in matches if match)


class BlockReader:
    """Iterates over the blocks of one part: (next offset, sequence, payload).

    A torn tail ends the iteration; a new reader at `offset` goes on when the writer has. After damage in the middle the
    next block whose CRC is right is found again.

    Attributes:
        offset: where the next block begins.
        skipped_bytes: damaged bytes that were passed over.
    """

    def __init__(self, path: Union[str, Path], offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.skipped_bytes = 0

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        with open(self.path, "rb", buffering=0, opener=regular_below(Path(self.path).parent.parent)) as file:
            ahead = _Ahead(file.fileno())
            while True:
                block = _read_block(ahead, self.offset)
                if block is None:
                    found = _find_block(ahead, self.offset + 1)
                    if found is None:
                        return
                    self.skipped_bytes += found - self.offset
                    self.offset = found
                    continue
                sequence, payload = block
                self.offset += _BLOCK.size + len(payload)
                yield self.offset, sequence, payload


def read_blocks(path: Union[str, Path], offset: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield (next offset, sequence, payload) of the whole blocks from `offset`; see `BlockReader`."""
    return iter(BlockReader(path, offset))


class BlockLogWriter:
    """Appends records to the parts of one epoch; never raises for the disk's sake.

    What the disk refuses is kept, up to 8 MiB; then the oldest goes and is counted, and its sequence numbers stay
    unused, so that readers see the gap. A block is kept until fsync has succeeded, every few seconds and at a part's end;
    where fsync or close fails, all since the last one is written again, into another part. Readers take what is there
    twice once.

    Args:
        folder: the run's `telemetry/` folder, which is never created here.
        epoch: the supervisor's epoch.
        max_bytes, max_age_s: a new part begins when the current one is larger or older.
        disk: where it writes.

    Attributes:
        dropped_bytes: record bytes given up so far.
        malformed_bytes: bytes refused by `append` because they were no records.
        last_error: what the disk said last, None while all is well.
    """

    def __init__(
        self,
        folder: Union[str, Path],
        epoch: int,
        *,
        max_bytes: int = 64_000_000,
        max_age_s: float = 600.0,
        disk: Disk = DISK,
    ) -> None:
        self.folder = Path(folder)
        self.epoch = epoch
        self.dropped_bytes = 0
        self.malformed_bytes = 0
        self.last_error: Optional[OSError] = None
        self._disk = disk
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._schemas: dict[bytes, None] = {}
        self._schemas_due: list[bytes] = []
        self._buffer: list[bytes] = []
        self._buffer_bytes = 0
        self._buffered_at = 0.0
        self._queue: Deque[bytes] = deque()
        self._queue_bytes = 0
        self._unsynced: list[bytes] = []
        self._unsynced_bytes = 0
        self._synced_at = 0.0
        self._sequence = 0
        self._descriptor: Optional[int] = None
        self._part = max((part for of, part, _ in list_parts(self.folder) if of == epoch), default=-1)
        self._size = 0
        self._opened_at = 0.0
        self._retry_at = 0.0
        self._rotate = False

    @property
    def path(self) -> Path:
        """The part that is written to, or was last."""
        return self.folder / f"blocks-{self.epoch}-{self._part}.log"

    @property
    def pending_bytes(self) -> int:
        """Record bytes that are not in the file yet."""
        return self._buffer_bytes + self._queue_bytes

    def append(self, records: bytes) -> None:
        """Buffer whole records; their schemas are remembered."""
        if not records:
            return
        at, size, header = 0, len(records), RECORD.size
        while at + header <= size:
            length, kind = RECORD.unpack_from(records, at)
            if at + header + length > size:
                break
            if kind == SCHEMA:
                self.remember_schema(records[at : at + header + length])
            at += header + length
        if at < size:
            self.malformed_bytes += size - at
            records = records[:at]
        if not self._buffer:
            self._buffered_at = monotonic()
        self._buffer.append(bytes(records))
        self._buffer_bytes += len(records)
        if self._buffer_bytes >= BLOCK_BYTES:
            self._close_buffer()
            self._write_queue(force=False)

    def remember_schema(self, record: bytes) -> None:
        """Begin every later part with this schema record too."""
        self._schemas[bytes(record)] = None

    def tick(self, now: Optional[float] = None) -> None:
        """Flush when the oldest buffered byte is older than 2 s; `now` is `cordee.core.clock.monotonic()`."""
        now = monotonic() if now is None else now
        if self._buffer and now - self._buffered_at >= FLUSH_AFTER_S:
            self._close_buffer()
        if self._queue or (self._unsynced and now - self._synced_at >= SYNC_AFTER_S):
            self._write_queue(force=False)

    def flush(self) -> bool:
        """Write everything now; return whether nothing is left."""
        self._close_buffer()
        return self._write_queue(force=True)

    def close(self) -> bool:
        """Write everything, make it durable and close; return whether nothing is left."""
        for _ in range(2):  # what the disk took back is written once more
            self.flush()
            try:
                self._end_part()
            except OSError as error:
                self.last_error = error
            if not self.pending_bytes:
                break
        return not self.pending_bytes

    def _close_buffer(self) -> None:
        if self._buffer:
            self._queue.append(b"".join(self._buffer))
            self._queue_bytes += self._buffer_bytes
            self._buffer, self._buffer_bytes = [], 0

    def _write_queue(self, *, force: bool) -> bool:
        now = monotonic()
        if (self._queue or self._unsynced) and (force or now >= self._retry_at):
            try:
                if self._queue:
                    self._open_part(now)
                    self._write_schemas()
                while self._queue:
                    self._write_block(self._queue[0])
                    self._written(self._queue.popleft(), now)
                if self._unsynced_bytes >= SYNC_BYTES or now - self._synced_at >= SYNC_AFTER_S:
                    self._sync(now)
                self.last_error = None
            except OSError as error:
                self.last_error = error
                self._retry_at = now + RETRY_AFTER_S
                self._undo_torn_block()
        while self._queue_bytes > KEEP_BYTES:
            lost = self._queue.popleft()
            self._queue_bytes -= len(lost)
            self.dropped_bytes += len(lost)
            self._sequence += 1
            self._schemas_due = list(self._schemas)  # one may have been among what is lost
        return not self._queue

    def _written(self, payload: bytes, now: float) -> None:
        self._queue_bytes -= len(payload)
        if not self._unsynced:
            self._synced_at = now
        self._unsynced.append(payload)
        self._unsynced_bytes += len(payload)

    def _sync(self, now: float) -> None:
        """Make durable what is written; where that fails it is to be written again, elsewhere."""
        if self._descriptor is None or not self._unsynced:
            return
        try:
            self._disk.fsync(self._descriptor)
        except OSError:
            self._write_again()
            self._rotate = True
            raise
        self._synced_at = now
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _write_again(self) -> None:
        self._queue.extendleft(reversed(self._unsynced))
        self._queue_bytes += self._unsynced_bytes
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _end_part(self) -> None:
        """Close the part that is written to; an error, of fsync or of close, means that it may not hold what was written."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            try:
                if self._unsynced:
                    self._disk.fsync(descriptor)
            finally:
                self._disk.close(descriptor)
        except OSError:
            self._write_again()
            raise
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _open_part(self, now: float) -> None:
        if self._descriptor is not None:
            deleted = self._disk.stat(self._descriptor).st_nlink == 0
            due = self._size >= self._max_bytes or now - self._opened_at >= self._max_age_s or self._rotate
            if deleted or (due and self._size > 0):
                self._end_part()
        if self._descriptor is not None:
            return
        self._part += 1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._descriptor = self._disk.open(self.path, flags)
        except OSError:
            self._part -= 1
            raise
        self._size, self._opened_at, self._rotate = 0, now, False
        self._schemas_due = list(self._schemas)

    def _write_schemas(self) -> None:
        while self._schemas_due:
            count, size = 0, 0
            while count < len(self._schemas_due) and size < BLOCK_BYTES:
                size += len(self._schemas_due[count])
                count += 1
            self._write_block(b"".join(self._schemas_due[:count]))
            del self._schemas_due[:count]

    def _write_block(self, payload: bytes) -> None:
        checked = _CHECKED.pack(len(payload), self._sequence)
        crc = zlib.crc32(payload, zlib.crc32(checked))
        block = memoryview(_BLOCK.pack(MAGIC, len(payload), crc, self._sequence) + payload)
        assert self._descriptor is not None
        written = 0
        while written < len(block):
            written += self._disk.write(self._descriptor, block[written:])
        self._size += len(block)
        self._sequence += 1

    def _undo_torn_block(self) -> None:
        if self._descriptor is not None:
            try:
                self._disk.truncate(self._descriptor, self._size)
            except OSError:
                self._rotate = True  # readers find the next whole block behind the torn one


def _compact(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class _Ahead:
    """Reads a file in pieces of a megabyte; bytes that were not there when it looked are asked for again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._start, self._data = descriptor, 0, b""

    def pread(self, size: int, offset: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._start, self._data = offset, os.pread(self._descriptor, max(size, _SEARCH_BYTES), offset)
            at = 0
        return self._data[at : at + size]


def _read_block(ahead: _Ahead, offset: int) -> Optional[tuple[int, bytes]]:
    header = ahead.pread(_BLOCK.size, offset)
    if len(header) < _BLOCK.size:
        return None
    magic, length, crc, sequence = _BLOCK.unpack(header)
    if magic != MAGIC or length > _MAX_PAYLOAD_BYTES:
        return None
    payload = ahead.pread(length, offset + _BLOCK.size)
    if len(payload) < length or zlib.crc32(payload, zlib.crc32(_CHECKED.pack(length, sequence))) != crc:
        return None
    return sequence, payload


def _find_block(ahead: _Ahead, start: int) -> Optional[int]:
    """Return the offset of the first whole block at or after `start`."""
    while True:
        window = ahead.pread(_SEARCH_BYTES, start)
        at = window.find(MAGIC)
        while at >= 0:
            if _read_block(ahead, start + at) is not None:
                return start + at
            at = window.find(MAGIC, at + 1)
        if len(window) < len(MAGIC):
            return None
        start += len(window) - len(MAGIC) + 1
