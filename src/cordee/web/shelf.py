"""The runs below the given folders: listed, and found by id; no other path is ever opened for a request."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.errors import CordeeError, RunNotFound
from cordee.runs.folder import RunFolder
from cordee.runs.recording import is_recording
from cordee.web.reading import Reading
from cordee.web.summaries import Summary, summarise

_MOST_OPEN = 12
_REST_SHARE = 20  # journals of 10,000 ranks take a while: at most a twentieth of the time goes into reading them again


@dataclass(frozen=True)
class Place:
    """One run's folder; `stamp` changes whenever its journal does."""

    id: str
    folder: RunFolder
    stamp: tuple[Any, ...]


@dataclass(frozen=True)
class _Kept:
    """A summary, of which stamp it is, and the monotonic second before which it is not made again."""

    stamp: tuple[Any, ...]
    summary: Summary
    due: float

    def holds(self, stamp: tuple[Any, ...]) -> bool:
        """Return whether it is true of a folder with this stamp; that a recording has ended, silence may tell alone."""
        return self.stamp == stamp and not (self.summary.kind == "recording" and self.summary.state == "running")


class Shelf:
    """All runs that the server may show.

    Args:
        folders: each holds runs; one that is not there holds none.
        singles: folders of runs and recordings that are shown wherever they lie.
    """

    def __init__(self, folders: Sequence[Path], singles: Iterable[Path] = ()) -> None:
        self.folders = [Path(folder).absolute() for folder in folders]
        self.singles = {path.resolve().name: path.resolve() for path in map(Path, singles)}
        self._open: OrderedDict[str, Reading] = OrderedDict()
        self._summaries: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def summaries(self) -> list[Summary]:
        """Return one line about each run, the newest first; only journals that have changed are read."""
        found = {}
        for place in self._places():
            known = self._summaries.get(place.id)
            if known is None or (time.monotonic() >= known.due and not known.holds(place.stamp)):
                began = time.monotonic()
                summary = summarise(place.folder)
                now = time.monotonic()
                known = _Kept(place.stamp, summary, now + _REST_SHARE * (now - began))
            found[place.id] = known
        self._summaries = found
        return sorted(
            (kept.summary for kept in found.values()), key=lambda one: (one.submitted_at or 0.0, one.id), reverse=True
        )

    def folder(self, run: str) -> RunFolder:
        """Return the folder of a run by its id.

        Raises:
            RunNotFound: there is none of this name; nothing is looked up outside of the folders.
        """
        if run in self.singles:
            return RunFolder(self.singles[run])
        if run and run not in (".", "..") and not set(run) & set("/\\\0"):
            for parent in self.folders:
                found = _inside(parent, run)
                if found is not None:
                    return found
        raise RunNotFound("run not found", given=run[:200], next="/api/runs lists the runs")

    def reading(self, run: str) -> Reading:
        """Return the open run of this id; the one that was not asked for the longest is closed when there are too many.

        Raises:
            RunNotFound: see `folder`.
        """
        folder = self.folder(run)
        with self._lock:
            known = self._open.get(run)
            if known is None or known.folder.root != folder.root:
                known = Reading(folder)
            self._open[run] = known
            self._open.move_to_end(run)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return known

    def _places(self) -> Iterable[Place]:
        seen = set()
        for name, path in self.singles.items():
            seen.add(name)
            yield Place(name, RunFolder(path), _stamp(RunFolder(path)))
        for parent in self.folders:
            try:
                with os.scandir(parent) as entries:
                    names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
            except OSError:
                continue
            for name in names:
                folder = _inside(parent, name) if name not in seen else None
                if folder is not None:
                    seen.add(name)
                    yield Place(name, folder, _stamp(folder))


def _inside(parent: Path, name: str) -> RunFolder | None:
    """Return the run or recording `name` in `parent`; None where there is none, or a link leads out of it."""
    path = parent / name
    try:
        if path.is_symlink() and path.resolve().parent != parent.resolve():
            return None
        folder = RunFolder(path)
        return folder if folder.exists() or is_recording(folder) else None
    except (OSError, ValueError):
        return None


def _stamp(folder: RunFolder) -> tuple[Any, ...]:
    found = []
    for place in (folder.journal, folder.root / "recorders"):
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    status = entry.stat()
                    found.append((entry.name, status.st_size, status.st_mtime_ns))
        except (OSError, CordeeError):
            continue
    return tuple(sorted(found))
