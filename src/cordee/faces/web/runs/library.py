"""The runs below the given folders: listed, and found by id; no other path is ever opened for a request."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError, RunNotFound
from cordee.faces.web.runs.open_run import Reading
from cordee.faces.web.runs.summaries import Summary, summarise
from cordee.machine.mounts import is_shared
from cordee.runs.budget import Budget
from cordee.runs.children import FOLDER as CHILDREN
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import is_recording

_MOST_OPEN = 12
_SHARED_PER_S, _LOCAL_PER_S, _BURST = 20.0, 1000.0, 2000.0
_RUN_COST, _LISTING_COST = 12.0, 3.0
_NO_RUN_S = 2.0
_REST_SHARE = 20  # journals of 10,000 ranks take a while: at most a twentieth of the time goes into reading them again


@dataclass(frozen=True)
class _Kept:
    """A summary, of which stamp it is, and the monotonic second before which it is not made again."""

    stamp: tuple[Any, ...]
    summary: Summary
    due: float
    looked_at: float

    @property
    def order(self) -> tuple[bool, float]:
        """Whose folder is looked at first: runs that have not ended, and of them that which was not looked at for longest."""
        return self.summary.ended_at is not None, self.looked_at

    def holds(self, stamp: tuple[Any, ...]) -> bool:
        """Return whether it is true of a folder with this stamp; that a recording has ended, silence may tell alone."""
        return self.stamp == stamp and not (self.summary.kind == "recording" and self.summary.state == "running")


class RunLibrary:
    """All runs that the server may show.

    Args:
        folders: each holds runs; one that is not there holds none.
        singles: folders of runs and recordings that are shown wherever they lie.
        per_s: metadata operations a second that the list of runs may ask for in the long run; None: as many as the file
            systems are fit for.
    """

    def __init__(self, folders: Sequence[Path], singles: Iterable[Path] = (), *, per_s: float | None = None) -> None:
        self.folders = [Path(folder).absolute() for folder in folders]
        self.singles = {path.resolve().name: path.resolve() for path in map(Path, singles)}
        self._open: OrderedDict[str, Reading] = OrderedDict()
        self._kept: dict[str, _Kept] = {}
        self._named: dict[str, Path] | None = None
        self._no_runs: dict[str, float] = {}
        self._parents: dict[str, Path] = {}
        self._lock, self._listing = threading.Lock(), threading.Lock()
        shared = any(is_shared(str(folder)) for folder in self.folders)
        per_s = (_SHARED_PER_S if shared else _LOCAL_PER_S) if per_s is None else per_s
        self._budget = Budget(per_s, _BURST, time.monotonic())

    def summaries(self) -> list[Summary]:
        """Return one line about each run, the newest first; only journals that have changed are read.

        Looking whether they have costs a bounded number of operations a second, however many runs there are.
        """
        with self._listing:
            found = self._names()
            known = {run: kept for run, kept in self._kept.items() if run in found}
            for run in sorted(found.keys() - known.keys()):
                now = time.monotonic()
                if now >= self._no_runs.get(run, 0.0):
                    self._budget.take(_RUN_COST, now)
                    self._look(run, found[run], known)
            for run in sorted(known, key=lambda run: known[run].order):
                if not self._budget.buy(_RUN_COST, time.monotonic()):
                    break
                self._look(run, found[run], known)
            self._kept = known
        kept = [one.summary for one in known.values()]
        return sorted(kept, key=lambda one: (one.submitted_at or 0.0, one.id), reverse=True)

    def _names(self) -> dict[str, Path]:
        """Return the folders of what may be runs, by id; as they were, while listing them again is not due."""
        if self._named is None or self._budget.buy(_LISTING_COST * len(self.folders), time.monotonic()):
            found = dict(self.singles)
            for parent in self.folders:
                try:
                    names = sorted(name for name in os.listdir(parent) if not name.startswith("."))
                except OSError:
                    continue
                for name in names:
                    found.setdefault(name, parent / name)
            self._named = found
        return self._named

    def _look(self, run: str, path: Path, known: dict[str, _Kept]) -> None:
        """Bring the line about a run up to date; what is none has none, and is looked at again a while later."""
        folder = RunFolder(path) if run in self.singles else _inside(path.parent, run)
        if folder is None:
            known.pop(run, None)
            self._no_runs[run] = time.monotonic() + _NO_RUN_S
            return
        stamp, kept, began = _stamp(folder), known.get(run), time.monotonic()
        if kept is None or (began >= kept.due and not kept.holds(stamp)):
            summary = summarise(folder)
            now = time.monotonic()
            known[run] = _Kept(stamp, summary, now + _REST_SHARE * (now - began), began)
        else:
            known[run] = replace(kept, looked_at=began)

    def folder(self, run: str) -> RunFolder:
        """Return the folder of a run, or of a run below one, by its id.

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
            found = self._child(run)
            if found is not None:
                return found
        raise RunNotFound("run not found", given=run[:200], next="/api/runs lists the runs")

    def _child(self, run: str) -> RunFolder | None:
        """Return the run of this id that is below one of the runs; None also where looking at all is not due."""
        with self._listing:
            known, runs = self._parents.get(run), self._names()
            if known is None and not self._budget.borrow(len(runs), time.monotonic()):
                return None
        for parent in [known] if known is not None else list(runs.values()):
            below = parent / CHILDREN
            if not (below / run).is_dir() or below.is_symlink():
                continue
            if self.singles.get(parent.name) == parent or _inside(parent.parent, parent.name) is not None:
                self._parents[run] = parent
                return _inside(below, run)
        return None

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
