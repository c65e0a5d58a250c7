"""What of the journal was appended, what has got into its file, and what is on the disk for good."""

from __future__ import annotations

from typing import Any

from cordee.runs.journal import JournalWriter, place


class Records:
    """The events of all writers of a run.

    Attributes:
        written: in their files, in the order in which they got there: they outlive their writer.
        durable: of these, what also outlives the machine that wrote them.
        appended: all: what a disk refused late may be in its file all the same.
    """

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.durable: list[dict[str, Any]] = []
        self.appended: list[dict[str, Any]] = []
        self._waiting: dict[JournalWriter, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}

    def add(self, writer: JournalWriter, record: dict[str, Any]) -> None:
        """Take an event that was appended."""
        self.appended.append(record)
        for waiting in self._waiting.setdefault(writer, ([], [])):
            waiting.append(record)

    def look(self, writer: JournalWriter) -> list[dict[str, Any]]:
        """Take how far a writer has got, and return what is written since the last time."""
        to_write, to_last = self._waiting.get(writer, ([], []))
        new = _first(to_write, writer.written_until)
        self.written += new
        self.durable += _first(to_last, writer.durable_until)
        return new

    def power_lost(self) -> None:
        """What was written and not durable is gone."""
        self.written = list(self.durable)

    def has(self, event: str, **fields: Any) -> bool:
        """Return whether such an event is durable."""
        return any(one["event"] == event and fields.items() <= one.items() for one in self.durable)

    def lost(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the durable events that are not among those that were found."""
        there = {place(event) for event in found}
        return [event for event in self.durable if place(event) not in there]


def _first(waiting: list[dict[str, Any]], until: int) -> list[dict[str, Any]]:
    """Remove and return what has a lower number than `until`."""
    count = sum(record["seq"] < until for record in waiting)
    first = waiting[:count]
    del waiting[:count]
    return first
