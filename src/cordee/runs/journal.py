"""The journal of a run: JSON lines, one append-only file per writer, ordered by (epoch, sequence) and never by the clock."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import RunFolderError
from cordee.core.units import utc_text
from cordee.machine.foreign_files import parse_json, read_regular, regular_below
from cordee.runs.disk import DISK, Disk
from cordee.runs.lane import Inline

SCHEMA = "cordee.journal/1"
_MAJOR = 1
MOST_BYTES = 512 << 20  # of all writers of a run, for those who read another's: weeks of it

# Of what only says how things stand, the newest one counts; older ones may go while the disk refuses for long.
_SUPERSEDED = frozenset(("progress", "checkpoint_seen"))
_MOST_WAITING_BYTES = 8 << 20
_SYNC_BYTES = 16 << 20  # that are written and not durable; who leads a run has all made durable every two seconds
_WRITE_BYTES = 1 << 20
_RETRY_S = 1.0
_PROGRESS = b'"event":"progress"'
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


class JournalLine(NamedTuple):
    """One event as it is written: with its line end."""

    data: bytes
    sequence: int
    event: str
    durable: bool


class UnwrittenLines:
    """The lines that are not certainly on the disk, in their order: those to write, and those written and not yet durable.

    Nothing leaves before `certain`. Beyond `most_bytes` progress that later progress supersedes is dropped, and nothing else.

    Args:
        most_bytes: of lines to write.

    Attributes:
        superseded: lines dropped so far.
    """

    def __init__(self, most_bytes: int = _MOST_WAITING_BYTES) -> None:
        self.superseded = 0
        self._most_bytes = self._limit = most_bytes
        self._to_write: list[JournalLine] = []
        self._written: list[JournalLine] = []
        self._bytes = 0
        self._taken = 0
        self._unsure_bytes, self._sync_due = 0, False

    def __len__(self) -> int:
        """Return how many lines are still to be written."""
        return len(self._to_write)

    def __bool__(self) -> bool:
        """Return whether any line is not durable."""
        return bool(self._to_write or self._written)

    @property
    def wants_sync(self) -> bool:
        """Whether what is written, or taken to be, is to be made durable now."""
        taken = self._to_write[: self._taken]
        size = self._unsure_bytes + sum(len(line.data) for line in taken)
        return self._sync_due or size >= _SYNC_BYTES or any(line.durable for line in taken)

    def first_not_written(self, after: int) -> int:
        """Return the sequence number of the first line that is not in the file, `after` when all are."""
        return self._to_write[0].sequence if self._to_write else after

    def first_not_durable(self, after: int) -> int:
        """Return the sequence number of the first line that may be lost, `after` when none may."""
        return self._written[0].sequence if self._written else self.first_not_written(after)

    def add(self, line: JournalLine) -> None:
        """Take one more line."""
        self._to_write.append(line)
        self._bytes += len(line.data)
        if self._bytes > self._limit:
            self._drop_superseded()
            self._limit = max(self._most_bytes, 2 * self._bytes)

    def take(self) -> list[JournalLine]:
        """Return what is to be written now; it stays here until `took` and `certain`."""
        self._taken = len(self._to_write)
        return list(self._to_write)

    def took(self, count: int) -> None:
        """The file took the first `count` lines whole; the rest of what was taken is to be written again."""
        took = self._to_write[:count]
        size = sum(len(line.data) for line in took)
        self._written += took
        self._unsure_bytes += size
        self._sync_due = self._sync_due or any(line.durable for line in took)
        del self._to_write[:count]
        self._taken = 0
        self._bytes -= size

    def certain(self) -> None:
        """What was written is durable."""
        self._written.clear()
        self._unsure_bytes, self._sync_due = 0, False

    def uncertain(self) -> None:
        """What was written may be lost: it is to be written again."""
        self._to_write[:0] = self._written
        self._bytes += self._unsure_bytes
        self.certain()

    def _drop_superseded(self) -> None:
        kept, newest = [], set()
        for line in reversed(self._to_write[self._taken :]):
            if line.event in _SUPERSEDED and line.event in newest:
                self._bytes -= len(line.data)
                self.superseded += 1
            else:
                newest.add(line.event)
                kept.append(line)
        self._to_write[self._taken :] = reversed(kept)


class JournalWriter:
    """Appends events to `journal/<writer>.jsonl`; a disk that refuses delays events, it neither loses nor raises them away.

    One process owns one writer. An event is kept until writing, fsync and close have all succeeded; after an error of any
    of them it is written again, so that the file may hold the same line twice, and readers count it once. A torn last line
    is closed with a line end by whoever writes next.

    Args:
        folder: the run's `journal/` folder.
        writer: `client`, `client-<node>` or `supervisor-<epoch>`.
        epoch: the epoch that the events belong to.
        sequence: the first sequence number to use.
        disk: where it writes.
        lane: what does the writing; one that is a thread leaves the event loop alone, and takes what came meanwhile together.
        wall, mono: the clocks that events are dated by, in UTC epoch seconds and in monotonic seconds.

    Attributes:
        lane: may be changed while nothing waits.
        last_error: what the disk said last, None while all is well.
        refused_since: when, by `mono`, the disk began to refuse; None while it does not.
        heard: called with each event, in the thread that appends it; None: by nobody.
    """

    def __init__(
        self,
        folder: Path,
        writer: str,
        epoch: int,
        sequence: int = 0,
        *,
        disk: Disk = DISK,
        lane: Optional[Inline] = None,
        wall: Callable[[], float] = unix_s,
        mono: Callable[[], float] = monotonic,
    ) -> None:
        self.path = folder / f"{writer}.jsonl"
        self.writer = writer
        self.epoch = epoch
        self.sequence = sequence
        self.last_error: Optional[OSError] = None
        self.refused_since: Optional[float] = None
        self.heard: Optional[Callable[[dict[str, Any]], object]] = None
        self._disk, self.lane = disk, lane or Inline()
        self._wall, self._mono = wall, mono
        self._moment = (-1, "")
        self._waiting = UnwrittenLines()
        self._mutex = threading.Lock()
        self._queued = False
        self._needs_newline: Optional[bool] = None

    def append(self, event: str, *, durable: bool = True, waits: bool = False, **fields: Any) -> dict[str, Any]:
        """Have one event written and return it; from any thread. One that `waits` is written with the next, or by `flush`.

        Without a thread that writes, a `durable` event is on the disk when this returns, unless the disk refuses; with one,
        whoever needs that waits for `durable()`.
        """
        with self._mutex:
            record: dict[str, Any] = {
                "schema": SCHEMA,
                "epoch": self.epoch,
                "seq": self.sequence,
                "writer": self.writer,
                "time": self._time(),
                "mono": round(self._mono(), 4),
                "event": event,
            }
            record.update(fields)
            data = _encode(record).encode() + b"\n"
            self._waiting.add(JournalLine(data, self.sequence, event, durable))
            self.sequence += 1
        if self.heard is not None:
            self.heard(record)
        if not waits:
            self._begin_writing()
        return record

    def _time(self) -> str:
        """Return the time as events tell it; those of one millisecond have it in common."""
        wall = self._wall()
        if int(wall * 1000) != self._moment[0]:
            self._moment = (int(wall * 1000), utc_text(wall))
        return self._moment[1]

    @property
    def pending(self) -> int:
        """Number of events that are not in the file."""
        return len(self._waiting)

    @property
    def written_until(self) -> int:
        """The sequence number up to which, itself left out, all events are in the file."""
        with self._mutex:
            return self._waiting.first_not_written(self.sequence)

    @property
    def durable_until(self) -> int:
        """The sequence number up to which, itself left out, all events are on the disk for good."""
        with self._mutex:
            return self._waiting.first_not_durable(self.sequence)

    def flush(self) -> bool:
        """Have what is pending written and made durable; return whether all of it is, by now."""
        self._begin_writing(sync=True)
        return not self._waiting

    async def durable(self) -> None:
        """Return once all events so far are on the disk for good; waits for as long as the disk refuses."""
        import asyncio  # slow to import, and most who read or write journals have no loop

        until = self.sequence
        while self.durable_until < until:
            await asyncio.shield(asyncio.wrap_future(self.lane.submit(self._sync)))
            if self.durable_until < until:
                await asyncio.sleep(_RETRY_S)

    def _begin_writing(self, sync: bool = False) -> None:
        with self._mutex:
            if self._queued or not self._waiting:
                return
            self._queued = True
        done = self.lane.submit(self._sync if sync else self._write)
        if done.done():
            done.result()

    def _sync(self) -> None:
        self._write(sync=True)

    def _write(self, sync: bool = False) -> None:
        """Write what waits, in one go: one open, one fsync and one close for all that came meanwhile."""
        with self._mutex:
            self._queued = False
            lines = self._waiting.take()
            sync = bool(self._waiting) and (sync or self._waiting.wants_sync)
        if not lines and not sync:
            return
        took, error, doubtful = 0, None, False
        try:
            descriptor = self._open()
        except OSError as refused:
            error = refused
        else:
            try:
                took = self._append(descriptor, lines)
                if took < len(lines):
                    error = self.last_error
                elif sync:
                    self._disk.fsync(descriptor)
            except OSError as refused:
                error, doubtful = refused, True
            try:
                self._disk.close(descriptor)
            except OSError as refused:
                error, doubtful = refused, True
        with self._mutex:
            self._waiting.took(took)
            if doubtful:
                self._waiting.uncertain()
            elif error is None and sync:
                self._waiting.certain()
        if error is not None:
            self._needs_newline = True
            self.refused_since = self._mono() if self.refused_since is None else self.refused_since
        else:
            self.refused_since = None
        self.last_error = error

    def _open(self) -> int:
        if self._needs_newline is None:
            self._needs_newline = _ends_torn(self.path)
        return self._disk.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, self.path.parent.parent)

    def _append(self, descriptor: int, lines: list[JournalLine]) -> int:
        """Write lines and return how many the file took whole; then `last_error` says why not all."""
        took = 0
        for count, data in _together(lines):
            view = memoryview(b"\n" + data if self._needs_newline else data)
            try:
                while view:
                    view = view[self._disk.write(descriptor, view) :]
            except OSError as refused:
                self.last_error = refused
                written = len(data) - len(view)
                for line in lines[took:]:
                    written -= len(line.data)
                    if written < 0:
                        return took
                    took += 1
                return took
            self._needs_newline = False
            took += count
        return took


def _together(lines: Iterable[JournalLine]) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines, their bytes) for each call of write."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line.data)
        size += len(line.data)
        if size >= _WRITE_BYTES:
            yield len(some), b"".join(some)
            some, size = [], 0
    if some:
        yield len(some), b"".join(some)


def client_journal(folder: Path, of: str = "") -> JournalWriter:
    """Return a writer for a command on the login node or laptop: its events sort after all that it can see.

    Args:
        of: the node of an agent of another run, where many may write at one moment: each to a file of its own.
    """
    events = read_journal(folder)
    epoch = max((event["epoch"] for event in events), default=0)
    sequence = max((event["seq"] for event in events if event["epoch"] == epoch), default=-1) + 1
    return JournalWriter(folder, f"client-{of}" if of else "client", epoch, sequence)


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Return all events of a run in order; torn and foreign lines are passed over.

    Raises:
        RunFolderError: the folder cannot be read, or was written by a newer major version.
    """
    events: list[dict[str, Any]] = []
    left_bytes = MOST_BYTES
    try:
        files = sorted(folder.glob("*.jsonl"))
        if not files and not folder.is_dir():
            raise FileNotFoundError(2, "no such folder")
        for path in files:
            content = read_regular(path, folder.parent, left_bytes)
            left_bytes -= len(content)
            events.extend(parse_lines(content, path))
    except OSError as error:
        raise RunFolderError(
            f"cannot read the journal: {error.strerror}",
            given=str(error.filename or folder),
            allowed="the journal/ folder of a run, with files of its own and no links",
            next="`cordee runs` lists the runs that are there",
        ) from error
    return in_order(events)


def place(event: dict[str, Any]) -> tuple[int, int, str]:
    """Return an event's place in the order of the journal."""
    return event["epoch"], event["seq"], event["writer"]


def in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events in the order of the journal; one that a writer wrote twice, unsure whether the disk had it, is there once."""
    found: list[dict[str, Any]] = []
    same = 0  # where the events with the place of the last one begin
    for event in sorted(events, key=place):
        if not found or place(found[-1]) != place(event):
            same = len(found)
        elif event in found[same:]:
            continue
        found.append(event)
    return found


def parse_lines(data: bytes, path: Path, *, brief: bool = False) -> list[dict[str, Any]]:
    """Return the events in the whole lines of `data`; `brief` leaves out progress that the next line supersedes.

    Raises:
        RunFolderError: a line has a newer major schema.
    """
    events = []
    lines = data.split(b"\n")
    if brief:
        told = [_PROGRESS in line for line in lines] + [False]
        lines = [line for at, line in enumerate(lines) if not (told[at] and told[at + 1])]
    for line in lines:
        try:
            record = parse_json(line)
        except ValueError:
            continue
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            continue
        schema = str(record.get("schema", ""))
        name, _, major = schema.partition("/")
        if name != "cordee.journal":
            continue
        if not major.split(".")[0].isdigit() or int(major.split(".")[0]) > _MAJOR:
            raise RunFolderError(
                "this run was written by a newer Cordée",
                file=str(path),
                given=schema,
                allowed=SCHEMA,
                next="read it with the version that wrote it, or newer",
            )
        record.setdefault("writer", path.stem)
        texts, numbers = (record["writer"], record.get("time")), (record.get("epoch"), record.get("seq"))
        if all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers):
            events.append(record)
    return events


def _ends_torn(path: Path) -> bool:
    """Return whether a file may end within a line."""
    try:
        with open(path, "rb", opener=regular_below(path.parent.parent)) as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False
    except OSError:
        return True
