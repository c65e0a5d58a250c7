"""Sees what every process of a simulated world writes into its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cordee.runs.journal import JournalWriter


@contextmanager
def journals_watched(
    appended: Callable[[JournalWriter, dict[str, Any]], None], written: Callable[[JournalWriter], None]
) -> Iterator[None]:
    """Call back, for the time of the block, whenever a journal of this process gets an event.

    Args:
        appended: called with the event.
        written: called once what was appended has been written, as far as the disk takes it.
    """
    append, write = JournalWriter.append, JournalWriter._write

    def watched_append(writer: JournalWriter, event: str, **fields: Any) -> dict[str, Any]:
        record = append(writer, event, **fields)
        appended(writer, record)
        return record

    def watched_write(writer: JournalWriter, sync: bool = False) -> None:
        write(writer, sync)
        written(writer)

    JournalWriter.append = watched_append  # type: ignore[method-assign, assignment]
    JournalWriter._write = watched_write  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        JournalWriter.append, JournalWriter._write = append, write  # type: ignore[method-assign]
