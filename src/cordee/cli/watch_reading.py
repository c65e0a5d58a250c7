"""What the live view reads: each class goes on where it stopped, and begins near the end of what is long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cordee.runs.folder import RunFolder
from cordee.runs.journal import parse_lines, read_journal
from cordee.runs.logframes import read_frames
from cordee.runs.state import RunState, replay

_BEGIN_BYTES = 256 << 10
_LONGEST_LINE = 4096


class JournalTail:
    """A run's state, replayed only when the journal has grown.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._events: list[dict[str, Any]] = []
        self._state = RunState(run=folder.id)

    def read(self) -> RunState:
        """Return the state now.

        Raises:
            RunFolderError: the journal cannot be read, or was written by a newer major version.
        """
        grown = False
        paths = sorted(self._folder.journal.glob("*.jsonl"))
        for path in paths:
            grown = self._read_file(path) or grown
        if not paths:
            read_journal(self._folder.journal)  # says what is wrong, if anything is
        if grown:
            self._events.sort(key=lambda event: (event["epoch"], event["seq"], event["writer"]))
            self._state = replay(self._events, self._folder.id)
        return self._state

    def _read_file(self, path: Path) -> bool:
        offset = self._offsets.get(path, 0)
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return False  # the next read of the folder says why
        if not whole:
            return False
        self._offsets[path] = offset + len(whole) + 1
        self._events += parse_lines(whole, path)
        return True


class OutputTail:
    """New lines of all ranks, beginning near the end of each file.

    Args:
        folder: the run's `logs/` folder.

    Attributes:
        partial: by rank, what it has written since its last line end, such as a progress bar.
    """

    def __init__(self, folder: Path) -> None:
        self.partial: dict[int, bytes] = {}
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._open: dict[tuple[Path, int, int, int], bytes] = {}

    def read(self) -> list[tuple[int, bytes]]:
        """Return (rank, line) of what was written since the last time, ordered by time as far as lines have one."""
        timed = []
        for path in sorted(self._folder.glob("*.log")):
            try:
                size = os.path.getsize(path)
                offset = self._offsets.get(path, max(0, size - _BEGIN_BYTES))
                if size == offset:
                    continue
                for frame in read_frames(path, offset):
                    self._offsets[path] = frame.end
                    key = (path, frame.attempt, frame.rank, frame.stream)
                    *whole, rest = (self._open.get(key, b"") + frame.data).split(b"\n")
                    self._open[key] = rest[-_LONGEST_LINE:]
                    self.partial[frame.rank] = self._open[key].strip()
                    timed += [(frame.time, frame.rank, line[:_LONGEST_LINE]) for line in whole]
            except OSError:
                continue
        timed.sort(key=lambda line: line[0])
        return [(rank, line) for _, rank, line in timed]
