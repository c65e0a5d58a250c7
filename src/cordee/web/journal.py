"""A run's journal, followed: events, and the state that they replay to; read further only when it has grown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cordee.runs.folder import RunFolder
from cordee.runs.journal import parse_lines, read_journal
from cordee.runs.state import RunState, replay


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
        grown = [self._read_file(path) for path in paths]
        if any(grown):
            self.events.sort(key=lambda event: (event["epoch"], event["seq"], event["writer"]))
            self.state = replay(self.events, self._folder.id)
            self.version += 1
        return self.state

    def _shrunk(self, path: Path) -> bool:
        """Return whether a file is shorter than what was read of it, as when the folder was replaced by a copy."""
        try:
            return os.path.getsize(path) < self._offsets[path]
        except OSError:
            return True

    def _read_file(self, path: Path) -> bool:
        offset = self._offsets.get(path, 0)
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return False
        if not whole:
            return False
        self.events += parse_lines(whole, path)
        self._offsets[path] = offset + len(whole) + 1
        return True
