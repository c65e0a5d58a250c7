"""When those who wait for a run look at its folder, and at what: at once where there is news, hardly where there is none.

Every command and page that follows a run asks here. A shared file system serves thousands of users: what one of them asks of
it in a second has a bound, whatever the size of the run, and all who wait for a run share one. What may be looked at is bought
from a `Budget`; looking at `control/news`, which is kept open, costs nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from cordee.machine.mounts import is_shared
from cordee.runs.budget import Budget, SharedBudget
from cordee.runs.folder import RunFolder
from cordee.runs.news import NewsReader, RunNews, news_file

# A command that waits, and somebody who watches; see `TOGETHER_PER_S` for all of them.
SHARED_PER_S, WATCHED_PER_S, SHARED_BURST = 0.5, 1.0, 60.0
LOCAL_PER_S, LOCAL_BURST = 40.0, 200.0
# Its folder opened and listed, and each writer's file opened.
JOURNAL_COST = 6.0
TELEMETRY_COST = 28.0
_QUICK_S, _QUICKEST_PAUSE_S, _QUICKEST_LOCAL_PAUSE_S = 5.0, 0.1, 0.03
_LONGEST_PAUSE_S, _LONGEST_LOCAL_PAUSE_S = 2.0, 0.2
_SLOWER = 1.3
_ANYWAY_S = 10.0
_SILENT_S = 10.0
_MISSING_COST = 1.0


class RunSeen(NamedTuple):
    """What is to be read now.

    Attributes:
        journal, telemetry: whether they have grown.
        logs: names of the log files that have grown; None: nobody tells which, so all are to be listed.
    """

    journal: bool
    telemetry: bool
    logs: frozenset[str] | None


class Lookout:
    """Looks after one run for one reader, who reads what `look` says and then waits for `pause_s`.

    Args:
        folder: the run's folder.
        shared_per_s: metadata operations a second where the file system is one that others use, too; less where several wait.
        shared: whether it is; None: as the kernel says.
        clock: monotonic seconds.

    Attributes:
        quickest_s: the shortest pause between two looks.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        shared_per_s: float = SHARED_PER_S,
        shared: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        shared = is_shared(str(folder.root)) if shared is None else shared
        self._longest = _LONGEST_PAUSE_S if shared else _LONGEST_LOCAL_PAUSE_S
        self.quickest_s = _QUICKEST_PAUSE_S if shared else _QUICKEST_LOCAL_PAUSE_S
        now = clock()
        self.budget = (
            SharedBudget(folder.root, shared_per_s, SHARED_BURST, now)
            if shared
            else Budget(LOCAL_PER_S, LOCAL_BURST, now)
        )
        self._root = folder.root
        self._reader = NewsReader(folder.root)
        self._news: RunNews | None = None
        self._read: RunNews | None = None  # as far as the journal was read
        self._heard = now - _SILENT_S
        self._grown: set[str] = set()
        self._telemetry = False
        self._quick_until = now + _QUICK_S
        self._pause = self.quickest_s
        self._anyway = now

    def look(self) -> RunSeen:
        """Return what to read now."""
        now = self._clock()
        self.budget.share(now)
        before, news = self._news, self._ask(now)
        if news is None:
            return self._without_news(now)
        self._news = news
        if news != before:
            self._heard = now - (self._reader.age_s if before is None else 0.0)
        first = before is None or before.epoch != news.epoch
        marked = self._read is None or self._read[:2] != news[:2]
        known = {} if before is None else before.logs
        self._grown |= {name for name, size in news.logs.items() if known.get(name) != size}
        self._telemetry |= first or before is None or before.telemetry != news.telemetry
        logs = frozenset(self._grown) if not first else None
        due = now >= self._anyway
        if marked:
            journal = news.ending or self.budget.borrow(JOURNAL_COST, now)
        else:
            journal = (due or self._read is None or self._read.journal != news.journal) and self._afford(now)
        if journal:
            self._read, self._anyway = news, now + _ANYWAY_S
        telemetry = self._telemetry
        self._grown.clear()
        self._telemetry = False
        if marked and journal:
            self._quick_until = now + _QUICK_S
        self._slow_down(now, news=(marked and journal) or bool(logs))
        return RunSeen(journal, telemetry, logs)

    def affordable(self, cost: float) -> bool:
        """Buy operations for reading something else that has grown; False: not now, `look` says so again."""
        bought = self.budget.buy(cost, self._clock())
        self._telemetry |= not bought
        return bought

    def seldom_s(self, alone_s: float) -> float:
        """Return the pause between two questions that cost the same each time, from the one for somebody who waits alone."""
        return alone_s * self.budget.together

    @property
    def heard_lately(self) -> bool:
        """Whether the run's supervisor has told something new in the last seconds, so that nobody need ask whether it lives."""
        return self._clock() - self._heard < _SILENT_S

    @property
    def pause_s(self) -> float:
        """Seconds until the next look."""
        return self._pause

    def _ask(self, now: float) -> RunNews | None:
        """Return the news, if they can be had: looking for a file that may not be there is not free."""
        if not self._reader.open and not (
            self.budget.buy(_MISSING_COST, now) and os.path.exists(news_file(self._root))
        ):
            return None
        return self._reader.read()

    def _without_news(self, now: float) -> RunSeen:
        """Nobody tells what is new, as before a run has its nodes, or once it has ended: look everywhere, now and then."""
        self._slow_down(now, news=False)
        if self._reader.open and now < self._anyway:  # it is being written
            return RunSeen(False, False, frozenset())
        if not self._afford(now):
            return RunSeen(False, False, frozenset())
        self._anyway = now + _ANYWAY_S
        return RunSeen(True, True, None)

    def _afford(self, now: float) -> bool:
        return self.budget.buy(JOURNAL_COST, now)

    def _slow_down(self, now: float, *, news: bool) -> None:
        if now < self._quick_until:
            self._pause = self.quickest_s
        elif news:
            self._pause = min(self._longest, max(_LONGEST_LOCAL_PAUSE_S, self._pause / _SLOWER))
        else:
            self._pause = min(self._longest, self._pause * _SLOWER)
