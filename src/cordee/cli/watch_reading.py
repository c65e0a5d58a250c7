"""What the live view reads: each class continues where it stopped, and begins near the end of what is long."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from cordee.opening import regular_below
from cordee.runs.folder import RunFolder
from cordee.runs.journal import MOST_BYTES, parse_lines, read_journal
from cordee.runs.logtail import LogTail
from cordee.runs.state import Replay, RunState

_BEGIN_BYTES = 256 << 10
_LONGEST_LINE = 4096


class JournalTail:
    """A run's state; what the journal has grown by is added to it.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._events: list[dict[str, Any]] = []
        self._replay = Replay(folder.id)
        self.state = RunState(run=folder.id)

    def read(self) -> RunState:
        """Return the state now.

        Raises:
            RunFolderError: the journal cannot be read, or was written by a newer major version.
        """
        paths = sorted(self._folder.journal.glob("*.jsonl"))
        news = [event for path in paths for event in self._read_file(path)]
        if not paths:
            read_journal(self._folder.journal)  # says what is wrong, if anything is
        if news:
            news.sort(key=_place)
            if self._events and _place(news[0]) < _place(self._events[-1]):  # written late: all over again
                self._events = sorted(self._events + news, key=_place)
                self._replay = Replay(self._folder.id)
                news = self._events
            else:
                self._events += news
            self.state = self._replay.feed(news)
        return self.state

    def _read_file(self, path: Path) -> list[dict[str, Any]]:
        offset = self._offsets.get(path, 0)
        try:
            with open(path, "rb", opener=regular_below(self._folder.root)) as file:
                file.seek(offset)
                whole = file.read(MOST_BYTES).rpartition(b"\n")[0]
        except OSError:
            read_journal(self._folder.journal)  # says what is wrong, if it still is
            return []
        if not whole:
            return []
        self._offsets[path] = offset + len(whole) + 1
        return parse_lines(whole, path)


def _place(event: dict[str, Any]) -> tuple[int, int, str]:
    return event["epoch"], event["seq"], event["writer"]


class OutputTail:
    """New lines of all ranks, beginning near the end of each file.

    Args:
        folder: the run's `logs/` folder.

    Attributes:
        partial: by rank, what it has written since its last line end, such as a progress bar.
    """

    def __init__(self, folder: Path) -> None:
        self.partial: dict[int, bytes] = {}
        self._tail = LogTail(folder, begin_bytes=_BEGIN_BYTES)
        self._open: dict[tuple[str, int, int, int], bytes] = {}

    def read(self, names: Collection[str] | None = None) -> list[tuple[int, bytes]]:
        """Return (rank, line) of what was written since the last time, ordered by time as far as lines have one.

        Args:
            names: of the files that have grown; None: all are to be listed.
        """
        timed = []
        for frame in self._tail.read(names):
            key = (frame.file, frame.attempt, frame.rank, frame.stream)
            *whole, rest = (self._open.get(key, b"") + frame.data).split(b"\n")
            self._open[key] = rest[-_LONGEST_LINE:]
            self.partial[frame.rank] = self._open[key].strip()
            timed += [(frame.time, frame.rank, line[:_LONGEST_LINE]) for line in whole]
        timed.sort(key=lambda line: line[0])
        return [(rank, line) for _, rank, line in timed]
