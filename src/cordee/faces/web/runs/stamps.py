"""What is different whenever anything in a run's folder is that answers are made from, at a bounded cost for the file system.

Where a run tells its news (see `cordee.runs.news`), they say what is new, and only then its few other files are looked at;
where it does not, all files are, the more seldom the more there are.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path

from cordee.core.registry import page_folders
from cordee.machine.mounts import is_shared
from cordee.runs.budget import Budget, SharedBudget
from cordee.runs.folder import RunFolder
from cordee.runs.lookout import LOCAL_PER_S, SHARED_BURST, WATCHED_PER_S
from cordee.runs.news import NewsReader, RunNews, news_file

_LOCAL_BURST = 2000.0
# What has grown is read when it is known that it has: journal, telemetry.
_READ_COST = 20.0
_LISTING_COST = 3.0


class Stamps:
    """Looks after one run's folder for the server.

    Args:
        folder: the run's folder.
        shared: whether the file system is one that others use, too: then it shares what may be asked with all who wait for the
            run; None: as the kernel says.
        clock: monotonic seconds.

    Attributes:
        heard_at: when anything was written last: journal, samples or logs; UTC epoch seconds of the file system's clock.
        log_bytes: of all logs; it grows with every line.
    """

    def __init__(
        self, folder: RunFolder, *, shared: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._clock = folder, clock
        shared = is_shared(str(folder.root)) if shared is None else shared
        self._budget = (
            SharedBudget(folder.root, WATCHED_PER_S, SHARED_BURST, clock())
            if shared
            else Budget(LOCAL_PER_S, _LOCAL_BURST, clock())
        )
        self._reader = NewsReader(folder.root)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._stamp: Hashable = None
        self._cost = _READ_COST
        self.heard_at: float | None = None
        self.log_bytes = 0

    def now(self) -> Hashable:
        """Return the stamp; an earlier one, where a look at the folder is not due yet."""
        with self._lock:
            now = self._clock()
            self._budget.share(now)
            news = self._news(now)
            numbers = None if news is None else (*news[:4], sum(news.logs.values()))
            marked = self._seen is None or numbers is None or numbers[:2] != self._seen[:2]
            if self._stamp is None or (news is not None and marked and news.ending):
                self._budget.take(self._cost, now)
            elif not (self._budget.borrow if news is not None and marked else self._budget.buy)(self._cost, now):
                return self._stamp
            bought = self._cost
            self._look(numbers)
            self._budget.take(max(0.0, self._cost - bought), now)
            return self._stamp

    def _news(self, now: float) -> RunNews | None:
        if not self._reader.open and not (self._budget.buy(1.0, now) and os.path.exists(news_file(self._folder.root))):
            return None
        return self._reader.read()

    def _look(self, numbers: tuple[int, ...] | None) -> None:
        folder = self._folder
        places = [folder.journal, folder.telemetry, folder.root / "recorders", folder.report]
        there = _names(folder.root)
        asked = [_listed(folder.root / name) for name in page_folders() if name in there]
        listed = [_listed(place) for place in (*places, folder.logs)[: 5 if numbers is None else 4]]
        heard = [status for part in (listed[0], listed[1], *listed[4:]) for status in (part or {}).values()]
        self.heard_at = max((mtime_ns / 1e9 for _, mtime_ns in heard), default=None)
        if numbers is not None:
            self._seen, self.log_bytes = numbers, numbers[4]
            news = _status(news_file(folder.root))
            self.heard_at = max(self.heard_at or 0.0, news[1] / 1e9) if news else self.heard_at
        elif listed[4] is not None:
            self.log_bytes = sum(size for name, (size, _) in listed[4].items() if name.endswith(".log"))
        entries = sum(len(part) for part in (*listed, *asked) if part)
        self._cost = _READ_COST + _LISTING_COST * (1 + len(listed) + len(asked)) + entries
        plain = [_status(folder.plan), _status(folder.telemetry / "sealed.zarr" / "zarr.json")]
        found = [None if part is None else tuple(sorted(part.items())) for part in (*listed, *asked)]
        self._stamp = (numbers, *plain, *found)


def _names(place: Path) -> frozenset[str]:
    """Return what is in a folder, empty where there is none."""
    try:
        return frozenset(os.listdir(place))
    except OSError:
        return frozenset()


def _listed(place: Path) -> dict[str, tuple[int, int]] | None:
    """Return size and time of what is in a folder; None where there is none."""
    try:
        with os.scandir(place) as entries:
            return {entry.name: status for entry in entries if (status := _status(entry)) is not None}
    except OSError:
        return None


def _status(entry: os.DirEntry[str] | Path) -> tuple[int, int] | None:
    try:
        status = entry.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
