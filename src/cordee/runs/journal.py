"""The journal of a run: JSON lines, one append-only file per writer, ordered by (epoch, sequence) and never by the clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Optional

from cordee.errors import RunFolderError
from cordee.opening import parse_json, read_regular, regular_below
from cordee.units import utc_text

SCHEMA = "cordee.journal/1"
_MAJOR = 1
_MAX_PENDING = 10_000
MOST_BYTES = 512 << 20  # of all writers of a run: weeks of it


class JournalWriter:
    """Appends events to `journal/<writer>.jsonl`; a full disk delays events, it neither loses nor raises them away.

    One process owns one writer. Each event is one `write` call, so a reader sees whole lines but for a torn last one,
    which the next writer closes with a line end before it goes on.

    Args:
        folder: the run's `journal/` folder.
        writer: `client`, or `supervisor-<epoch>`.
        epoch: the epoch that the events belong to.
        sequence: the first sequence number to use.
    """

    def __init__(self, folder: Path, writer: str, epoch: int, sequence: int = 0) -> None:
        self.path = folder / f"{writer}.jsonl"
        self._opener = regular_below(folder.parent)
        self.writer = writer
        self.epoch = epoch
        self.sequence = sequence
        self.last_error: Optional[OSError] = None
        self._pending: list[bytes] = []
        self._needs_newline = _ends_torn(self.path)

    def append(self, event: str, *, durable: bool = True, **fields: Any) -> dict[str, Any]:
        """Write one event and return it; `durable` events are on disk when this returns (unless the disk refuses)."""
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "epoch": self.epoch,
            "seq": self.sequence,
            "writer": self.writer,
            "time": utc_text(),
            "mono": round(time.monotonic(), 4),
            "event": event,
        }
        record.update(fields)
        self.sequence += 1
        if len(self._pending) < _MAX_PENDING:
            self._pending.append(json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n")
        self.flush(durable=durable)
        return record

    @property
    def pending(self) -> int:
        """Number of events that the disk has refused so far."""
        return len(self._pending)

    def flush(self, *, durable: bool = True) -> bool:
        """Try to write what is pending; return whether everything is written."""
        if not self._pending:
            return True
        try:
            descriptor = self._opener(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            self.last_error = error
            return False
        try:
            while self._pending:
                line = (b"\n" if self._needs_newline else b"") + self._pending[0]
                written = os.write(descriptor, line)
                if written < len(line):
                    raise OSError(28, "the disk took only a part of a line")
                self._needs_newline = False
                self._pending.pop(0)
            if durable:
                os.fsync(descriptor)
        except OSError as error:
            self._needs_newline = True
            self.last_error = error
            return False
        finally:
            os.close(descriptor)
        self.last_error = None
        return True


def client_journal(folder: Path) -> JournalWriter:
    """Return a writer for a command on the login node or laptop: its events sort after all that it can see."""
    events = read_journal(folder)
    epoch = max((event["epoch"] for event in events), default=0)
    sequence = max((event["seq"] for event in events if event["epoch"] == epoch), default=-1) + 1
    return JournalWriter(folder, "client", epoch, sequence)


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
    events.sort(key=lambda event: (event["epoch"], event["seq"], event["writer"]))
    return events


def parse_lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the events in the whole lines of `data`.

    Raises:
        RunFolderError: a line has a newer major schema.
    """
    events = []
    for line in data.split(b"\n"):
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
    try:
        with open(path, "rb", opener=regular_below(path.parent.parent)) as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False
