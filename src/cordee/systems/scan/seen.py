"""Verdicts of files that were looked at before, so that a job that comes again waits for nothing.

A file is known by device, inode, size and both times: who changes it changes the time of its inode, which only root can set.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cordee import __version__
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.node.verdict import FileVerdict, Sight

_KEPT_S = 90 * 86_400.0
_WAIT_S = 2.0
# Some file systems keep times by seconds; where they do not, the kernel's ticks of at most 10 ms are the steps.
_YOUNG_NS, _FINE_YOUNG_NS = 2_000_000_000, 100_000_000


class SeenVerdicts:
    """The memory of one person. What cannot be read or written of it is as if it were not there.

    Args:
        folder: where it lies; None: in the person's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._folder = folder or base / "cordee" / "scan"
        self._data: sqlite3.Connection | None = None
        with contextlib.suppress(sqlite3.Error, OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._data = sqlite3.connect(self._folder / "seen.sqlite", timeout=_WAIT_S, isolation_level=None)
            self._data.execute("create table if not exists seen (key text primary key, verdict text, at real)")
            self._data.execute("delete from seen where at < ?", (time.time() - _KEPT_S,))

    def verdicts(
        self, scanner: Scanner, paths: Iterable[str], allowed: Iterable[str], until: float
    ) -> Iterator[FileVerdict]:
        """Yield the verdict of each file; those that are new are looked at, as long as there is time.

        Args:
            scanner: that looks.
            paths: of files.
            allowed: what the scanner was told; another list is another verdict.
            until: when no more are begun, on the monotonic clock; they are `unknown` then.
        """
        told = ",".join(sorted(set(allowed))) + (" secrets" if scanner.secrets else "")
        fresh: dict[str, str | None] = {}
        for path in paths:
            key = file_key(path, told)
            known = self._known(key) if key is not None else None
            if known is not None:
                yield known._replace(path=path)
            else:
                fresh[path] = key
        for verdict in scanner.scan_all(_in_time(fresh, until)):
            key = fresh.pop(verdict.path, None)
            # What changed while it was looked at has another key by now, and is not remembered.
            if key is not None and key == file_key(verdict.path, told) and not _may_pass(verdict):
                self._remember(key, verdict)
            yield verdict
        for path in fresh:
            sight = Sight(
                "file-too-much", "unknown", "there was no time to look at it: `cordee scan` does, and is remembered"
            )
            yield FileVerdict(path, "unknown", (), (sight,))

    def close(self) -> None:
        """Close it."""
        if self._data is not None:
            self._data.close()

    def _known(self, key: str) -> FileVerdict | None:
        if self._data is None:
            return None
        with contextlib.suppress(sqlite3.Error, ValueError, KeyError, TypeError):
            row = self._data.execute("select verdict from seen where key = ?", (key,)).fetchone()
            if row is not None:
                told = json.loads(row[0])
                sights = tuple(Sight(**sight) for sight in told.pop("sights"))
                return FileVerdict(**{**told, "kinds": tuple(told["kinds"]), "sights": sights})
        return None

    def _remember(self, key: str, verdict: FileVerdict) -> None:
        if self._data is not None:
            with contextlib.suppress(sqlite3.Error):
                row = (key, json.dumps(verdict.document()), time.time())
                self._data.execute("insert or replace into seen values (?, ?, ?)", row)


def file_key(path: str, told: str) -> str | None:
    """Return by what a file is known; None: it is none, or so young that a change would not show."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    young = _YOUNG_NS if about.st_ctime_ns % 1_000_000_000 == 0 else _FINE_YOUNG_NS
    if time.time_ns() - about.st_ctime_ns < young:
        return None
    return f"{__version__} {told} {about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"


def _may_pass(verdict: FileVerdict) -> bool:
    """Return whether another look may say something else."""
    return any(sight.rule in ("file-too-much", "file-scanner-died", "file-unreadable") for sight in verdict.sights)


def _in_time(paths: Iterable[str], until: float) -> Iterator[str]:
    for path in list(paths):
        if time.monotonic() >= until:
            return
        yield path
