"""A run's journal, followed: events, and the state that they replay to; read further only when it has grown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cordee.opening import regular_below
from cordee.runs.folder import RunFolder
from cordee.runs.journal import MOST_BYTES, parse_lines, read_journal
from cordee.runs.state import Replay, RunState


class Journal:
    """Events and state of one run.

    Args:
        folder: the run's folder.

    Attributes:
        events: in the order of `read_journal`.
        state: their replay.
        version: grows with every change.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._offsets.clear()
        self.events: list[dict[str, Any]] = []
        self.state = RunState(run=self._folder.id)
        self.version = 0
        self._replay = Replay(self._folder.id)

    def read(self) -> RunState:
        """Return the state now.

        Raises:
            RunFolderError: the journal cannot be read, or was written by a newer major version.
        """
        paths = sorted(self._folder.journal.glob("*.jsonl"))
        if not paths or any(self._shrunk(path) for path in self._offsets):
            read_journal(self._folder.journal)  # says what is wrong, if anything is
            version = self.version + 1 if self.events else self.version
            self._begin()
            self.version = version
        pieces = [self._read_file(path) for path in paths]
        for path, (_, offset) in zip(paths, pieces, strict=True):
            self._offsets[path] = offset
        news = sorted((event for found, _ in pieces for event in found), key=_place)
        if (
            news and self.events and _place(news[0]) < _place(self.events[-1])
        ):  # a writer was behind another: from the start
            self.events = sorted([*self.events, *news], key=_place)
            self._replay, news = Replay(self._folder.id), self.events
        elif news:
            self.events = [*self.events, *news]
        if news:
            self.state = self._replay.feed(news)
            self.version += 1
        return self.state

    def _shrunk(self, path: Path) -> bool:
        """Return whether a file is shorter than what was read of it, as when the folder was replaced by a copy."""
        try:
            return os.path.getsize(path) < self._offsets[path]
        except OSError:
            return True

    def _read_file(self, path: Path) -> tuple[list[dict[str, Any]], int]:
        """Return the events that are new in a file, and the offset behind them."""
        offset = self._offsets.get(path, 0)
        try:
            with open(path, "rb", opener=regular_below(self._folder.root)) as file:
                file.seek(offset)
                whole = file.read(MOST_BYTES).rpartition(b"\n")[0]
        except OSError:
            read_journal(self._folder.journal)  # says what is wrong, if it still is
            return [], offset
        return (parse_lines(whole, path), offset + len(whole) + 1) if whole else ([], offset)


def _place(event: dict[str, Any]) -> tuple[int, int, str]:
    return event["epoch"], event["seq"], event["writer"]
