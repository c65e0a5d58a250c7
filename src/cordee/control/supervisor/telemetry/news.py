"""Tells what is new in a run to those who wait for it: see `cordee.runs.news`."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Collection, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.core.clock import monotonic
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Inline
from cordee.runs.news import NewsWriter, RunNews, news_file

_OFTEN_S, _SELDOM_S = 0.5, 2.0
_MANY = 64


class NewsFeed:
    """Writes the news on a lane: a file system that stands still holds nobody up.

    Args:
        root: the run's folder.
        journal, intake: of this supervisor.
        lane: where they are written.

    Attributes:
        unmarked: events of the journal that nobody has to hear of at once.
    """

    def __init__(self, root: Path, journal: JournalWriter, intake: TelemetrySink, lane: Inline) -> None:
        self._writer = NewsWriter(news_file(root))
        self._journal, self._intake, self._lane = journal, intake, lane
        self._writing: Optional[Future[bool]] = None
        self.unmarked = 0
        self._marks, self._due = -1, 0.0

    def look(self, nodes: Collection[Node]) -> None:
        """Write what is new, unless that goes on already: what matters at once, and what only grows now and then."""
        now, marks = monotonic(), self._journal.sequence - self.unmarked
        if (self._writing is None or self._writing.done()) and (marks != self._marks or now >= self._due):
            self._marks = marks - self._journal.pending
            self._due = now + (_OFTEN_S if len(nodes) <= _MANY else _SELDOM_S)
            news = self.news(nodes)
            self._writing = self._lane.submit(lambda: self._writer.tell(news))

    def news(self, nodes: Collection[Node]) -> RunNews:
        """Return the news as they are now."""
        written = self._journal.sequence - self._journal.pending
        logs = dict(node.log for node in nodes if node.log is not None)
        return RunNews(self._journal.epoch, written - self.unmarked, written, self._intake.taken_bytes, logs)
