"""Tells what is new in a run to those who wait for it: see `cordee.runs.news`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Collection, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.core.clock import monotonic
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Inline
from cordee.runs.news import NewsWriter, RunNews, news_file

_OFTEN_S, _SELDOM_S, _LAST_S = 0.5, 2.0, 1.0
_MANY = 64


class NewsFeed:
    """Writes the news on a lane: a file system that stands still holds nobody up.

    Args:
        root: the run's folder.
        journal, intake: of this supervisor.
        lane: where they are written.

    Attributes:
        unmarked: events of the journal that nobody has to hear of at once.
        ending: whether the run, or its segment, comes to its end.
    """

    def __init__(self, root: Path, journal: JournalWriter, intake: TelemetrySink, lane: Inline) -> None:
        self._writer = NewsWriter(news_file(root))
        self._journal, self._intake, self._lane = journal, intake, lane
        self._writing: Optional[Future[bool]] = None
        self.unmarked, self.ending = 0, False
        self._marks, self._due = -1, 0.0

    def look(self, nodes: Collection[Node]) -> None:
        """Write what is new, unless that goes on already: what matters at once, and what only grows now and then."""
        now, marks = monotonic(), self._journal.sequence - self.unmarked
        if (self._writing is None or self._writing.done()) and (marks != self._marks or now >= self._due):
            self._marks = marks - self._journal.pending
            self._due = now + (_OFTEN_S if len(nodes) <= _MANY else _SELDOM_S)
            news = self.news(nodes)
            self._writing = self._lane.submit(lambda: self._writer.tell(news))

    async def tell_the_rest(self, nodes: Collection[Node]) -> None:
        """Tell what nobody was told yet, before this process ends; a disk that stands still is not waited for."""
        news = self.news(nodes)
        await asyncio.wait({asyncio.ensure_future(self._lane.run(lambda: self._writer.tell(news)))}, timeout=_LAST_S)

    def news(self, nodes: Collection[Node]) -> RunNews:
        """Return the news as they are now."""
        written = self._journal.sequence - self._journal.pending
        logs = dict(node.log for node in nodes if node.log is not None)
        epoch, taken = self._journal.epoch, self._intake.taken_bytes
        return RunNews(epoch, written - self.unmarked, written, taken, logs, self.ending)
