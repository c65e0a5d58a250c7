"""A run's journal, followed: what it has grown by since the last time, and the state that it replays to."""

from __future__ import annotations

import heapq
import os
import threading
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Iterator, Mapping, Optional

from cordee.machine.foreign_files import open_folder, regular_in
from cordee.runs.folder import RunFolder
from cordee.runs.journal import MOST_BYTES, in_order, parse_lines, place, read_journal
from cordee.runs.state import Replay, RunState

_READ_BYTES = 4 << 20
_FEED_EVENTS = 20_000


class JournalFollower:
    """State, and events, of one run; only new bytes are read.

    Args:
        folder: the run's folder.
        keep: keep the events; without, memory does not grow with the journal, and its length has no limit: for the run's own
            processes, which must never find their own journal too long.

    Attributes:
        events: in the order of `read_journal`, if they are kept.
        state: their replay.
        version: grows with every change.
    """

    def __init__(self, folder: RunFolder, *, keep: bool = True) -> None:
        self._folder, self._keep = folder, keep
        self.version = 0
        self._begin()

    def _begin(self) -> None:
        self._offsets: dict[str, int] = {}
        self.events: list[dict[str, Any]] = []
        self.state = RunState(run=self._folder.id)
        self._replay = Replay(self._folder.id)
        self._last: Optional[dict[str, Any]] = None

    def read(self) -> RunState:
        """Return the state now.

        Raises:
            RunFolderError: the journal cannot be read, or was written by a newer major version.
        """
        with ExitStack() as opened:
            try:
                files = self._open(opened)
                if not files or self._shrunk(files):
                    self._complain()
                    self.version += self._last is not None
                    self._begin()
                if self._keep:
                    self._take(in_order(self._news(files)))
                else:
                    self._pass_on(self._news(files))
            except _Late:
                self._begin()
                self._pass_on(iter(in_order(self._news(files))))
            except OSError:
                self._complain()
        return self.state

    def stream(self) -> Iterator[dict[str, Any]]:
        """Yield the events from where the last look ended, in order as far as each file is; they are neither kept nor replayed.

        Raises:
            RunFolderError: as `read`.
        """
        with ExitStack() as opened:
            try:
                last: Optional[dict[str, Any]] = None
                for event in self._news(self._open(opened)):
                    if event != last:
                        yield event
                    last = event
            except OSError:
                self._complain()

    def _open(self, opened: ExitStack) -> dict[str, IO[bytes]]:
        """Return the open files of all writers; the way to them is gone once, as each step asks something of the file system."""
        inside = open_folder(self._folder.journal, self._folder.root, listed=True)
        opened.callback(os.close, inside)
        names = sorted(name for name in os.listdir(inside) if name.endswith(".jsonl"))
        return {name: opened.enter_context(open(regular_in(inside, name), "rb", buffering=0)) for name in names}

    def _take(self, news: list[dict[str, Any]]) -> None:
        """Add events to those that are kept; where a writer was behind another, all are replayed from the start."""
        if not news:
            return
        if self._last is not None and place(news[0]) <= place(self._last):
            together = in_order([*self.events, *news])
            if len(together) == len(self.events):
                return  # written again by a writer that was not sure of its disk
            self._replay, news, self.events = Replay(self._folder.id), together, []
        self.events = [*self.events, *news]
        self._feed(news)

    def _pass_on(self, news: Iterator[dict[str, Any]]) -> None:
        """Replay events as they are read and forget them.

        Raises:
            _Late: one belongs before those that were replayed already.
        """
        some: list[dict[str, Any]] = []
        for event in news:
            last = some[-1] if some else self._last
            if last is not None and place(event) <= place(last) and (place(event) != place(last) or event == last):
                self._offsets.clear()
                raise _Late
            some.append(event)
            if len(some) >= _FEED_EVENTS:
                self._feed(some)
                some = []
        if some:
            self._feed(some)

    def _feed(self, news: list[dict[str, Any]]) -> None:
        self._last = news[-1]
        self.state = self._replay.feed(news)
        self.version += 1

    def _news(self, files: Mapping[str, IO[bytes]]) -> Iterator[dict[str, Any]]:
        """Yield what the files have grown by, in order as far as each file is."""
        return heapq.merge(*(self._read_file(name, file) for name, file in files.items()), key=place)

    def _read_file(self, name: str, file: IO[bytes]) -> Iterator[dict[str, Any]]:
        rest = b""
        file.seek(self._offsets.get(name, 0))
        while True:
            piece = file.read(_READ_BYTES)
            whole, end, torn = (rest + piece).rpartition(b"\n")
            rest = torn
            if whole or end:  # what cannot be read is complained of again
                events = parse_lines(whole, self._folder.journal / name, brief=not self._keep)
                self._offsets[name] = self._offsets.get(name, 0) + len(whole) + 1
                yield from sorted(events, key=place)
            if not piece:
                return
            if self._keep and self._offsets.get(name, 0) + len(rest) > MOST_BYTES:
                raise OSError("the journal is too long")

    def _shrunk(self, files: Mapping[str, IO[bytes]]) -> bool:
        """Return whether a file is shorter than what was read of it, as when the folder was replaced by a copy."""
        return any(
            name not in files or os.fstat(files[name].fileno()).st_size < read for name, read in self._offsets.items()
        )

    def _complain(self) -> None:
        """Raise what is wrong with the journal, if it still is."""
        read_journal(self._folder.journal)


class FollowedStates:
    """The states of runs, for whoever asks often and in several threads: each time only what is new of a journal is read.

    Args:
        most: runs that are followed at once; the one that was asked for longest ago is read anew.
    """

    def __init__(self, most: int = 64) -> None:
        self._most, self._turn = most, threading.Lock()
        self._followers: OrderedDict[Path, JournalFollower] = OrderedDict()

    def of(self, run: RunFolder) -> RunState:
        """Return the state of a run now.

        Raises:
            RunFolderError: as `JournalFollower.read`.
        """
        with self._turn:
            follower = self._followers.pop(run.root, None) or JournalFollower(run, keep=False)
            self._followers[run.root] = follower
            while len(self._followers) > self._most:
                self._followers.popitem(last=False)
            return follower.read()


class _Late(Exception):
    """An event belongs before those that were replayed."""
