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
from cordee.runs.folder import RunFolder
from cordee.runs.news import NewsReader, RunNews, news_file
from cordee.runs.waiting import JOIN_COST, WaitingClients

# A command that waits, somebody who watches, and all of them together: beside the run's supervisor at most two a second in all.
SHARED_PER_S, WATCHED_PER_S, TOGETHER_PER_S, SHARED_BURST = 0.5, 1.0, 1.0, 60.0
LOCAL_PER_S, LOCAL_BURST = 40.0, 200.0
# Its folder opened and listed, and each writer's file opened.
JOURNAL_COST = 6.0
TELEMETRY_COST = 28.0
_QUICK_S, _QUICKEST_PAUSE_S = 5.0, 0.1
_LONGEST_PAUSE_S, _LONGEST_LOCAL_PAUSE_S = 2.0, 0.2
_SLOWER = 1.3
_ANYWAY_S = 10.0
_SILENT_S = 10.0
_MISSING_COST = 1.0
_LEAST_BURST = 2 * JOURNAL_COST


class Budget:
    """Metadata operations that may be asked of a file system: so many a second in the long run, some more at first.

    Args:
        per_s: operations a second.
        burst: operations that may be saved up, and are there at first.
        now: monotonic seconds.
    """

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s, self._burst, self._left, self._at = per_s, burst, burst, now

    def buy(self, cost: float, now: float) -> bool:
        """Take the operations; False where they have to wait. What costs more than can be saved up needs all savings."""
        self._earn(now)
        if self._left < min(cost, self._burst):
            return False
        self._left -= cost
        return True

    def take(self, cost: float, now: float) -> None:
        """Take operations that cannot wait, on credit."""
        self._earn(now)
        self._left -= cost

    def borrow(self, cost: float, now: float) -> bool:
        """Take operations that should not wait, on credit; False where half of what can be saved up is owed already."""
        self._earn(now)
        if self._left <= -0.5 * self._burst:
            return False
        self._left -= cost
        return True

    def change(self, per_s: float, burst: float, now: float) -> None:
        """From now on so many a second may be asked, and so many saved up."""
        self._earn(now)
        self._per_s, self._burst, self._left = per_s, burst, min(self._left, burst)

    def _earn(self, now: float) -> None:
        self._left = min(self._burst, self._left + self._per_s * max(0.0, now - self._at))
        self._at = now


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
        now = clock()
        self._alone_per_s, self._together = shared_per_s, 1
        self._clients = WaitingClients(folder.root, now) if shared else None
        if shared:
            self.budget = Budget(shared_per_s, SHARED_BURST, now)
            self.budget.take(JOIN_COST, now)
        else:
            self.budget = Budget(LOCAL_PER_S, LOCAL_BURST, now)
        self._root = folder.root
        self._reader = NewsReader(folder.root)
        self._news: RunNews | None = None
        self._read: RunNews | None = None  # as far as the journal was read
        self._heard = now
        self._grown: set[str] = set()
        self._telemetry = False
        self._quick_until = now + _QUICK_S
        self._pause = _QUICKEST_PAUSE_S
        self._anyway = now

    def look(self) -> RunSeen:
        """Return what to read now."""
        now = self._clock()
        self._share(now)
        before, news = self._news, self._ask(now)
        if news is None:
            return self._without_news(now)
        self._news = news
        if news != before:
            self._heard = now
        first = before is None or before.epoch != news.epoch
        marked = self._read is None or self._read[:2] != news[:2]
        known = {} if before is None else before.logs
        self._grown |= {name for name, size in news.logs.items() if known.get(name) != size}
        self._telemetry |= first or before is None or before.telemetry != news.telemetry
        logs = frozenset(self._grown) if not first else None
        due = now >= self._anyway
        if marked:
            journal = self.budget.borrow(JOURNAL_COST, now)
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
        return alone_s * self._together

    @property
    def heard_lately(self) -> bool:
        """Whether the run's supervisor has told something new in the last seconds, so that nobody need ask whether it lives."""
        return self._clock() - self._heard < _SILENT_S

    @property
    def pause_s(self) -> float:
        """Seconds until the next look."""
        return self._pause

    def _share(self, now: float) -> None:
        """Leave to the others who wait what is theirs."""
        together = 1 if self._clients is None else self._clients.count(now)
        if together != self._together:
            self._together = together
            per_s = min(self._alone_per_s, TOGETHER_PER_S / together)
            self.budget.change(per_s, max(_LEAST_BURST, SHARED_BURST / together), now)

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
            self._pause = _QUICKEST_PAUSE_S
        elif news:
            self._pause = min(self._longest, max(_LONGEST_LOCAL_PAUSE_S, self._pause / _SLOWER))
        else:
            self._pause = min(self._longest, self._pause * _SLOWER)
