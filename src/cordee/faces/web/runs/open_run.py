"""One run as the server reads it: opened once, one question at a time, nothing ever written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.faces.web.answers.errors import ServerBusy
from cordee.faces.web.runs.stamps import Stamps
from cordee.runs.folder import RunFolder
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.state import RunState
from cordee.telemetry.node.recording import all_ended, is_recorded, read_recorders, recording_state
from cordee.telemetry.store.placement import placement, placement_findings
from cordee.telemetry.store.reader import Run

_log = logging.getLogger(__name__)
_WAIT_S = 30.0
_MOST_WAITING = 16
_PLACES_S = 1.0
_PLACES_SHARE = 50


@dataclass(frozen=True)
class RankPositions:
    """Where ranks stand in the parallel layout, by rank, and what is wrong with it."""

    of: dict[int, dict[str, Any]]
    findings: list[Finding]


class Reading:
    """A run that is being looked at; questions of many threads take turns.

    Args:
        folder: the run's folder.

    Attributes:
        recording: whether it is what `cordee record` left, which has no journal.
        used: monotonic seconds of the last question.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.recording = is_recorded(folder)
        self.journal = JournalFollower(folder)
        self.used = time.monotonic()
        self._run = Run(folder)
        self._stamps = Stamps(folder)
        self._placed = RankPositions({}, [])
        self._placed_at: tuple[Hashable, float] = (None, 0.0)
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)

    @contextmanager
    def run(self) -> Iterator[Run]:
        """Have the run to oneself.

        Raises:
            Busy: too many wait already, or one took too long.
            RunFolderError: a file is missing or damaged; whatever the libraries that read it say of that.
        """
        if not self._waiting.acquire(blocking=False):
            raise ServerBusy(
                "too many questions about this run wait already", given=self.folder.id, next="ask again in a second"
            )
        try:
            if not self._turn.acquire(timeout=_WAIT_S):
                raise ServerBusy(
                    "another question about this run takes long", given=self.folder.id, next="ask again in a minute"
                )
            try:
                self.used = time.monotonic()
                yield self._run
            except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
                _log.warning("%s cannot be read", self.folder.root, exc_info=error)
                raise RunFolderError(
                    f"a part of the run cannot be read: {error}",
                    given=self.folder.id,
                    next="the other files of the run may still be on their way; copy it again if none is",
                ) from error
            finally:
                self._turn.release()
        finally:
            self._waiting.release()

    def state(self) -> tuple[RunState, RunFolderError | None]:
        """Return the state now, and why it is not the whole one, if so."""
        if self.recording:
            return recording_state(self.folder, read_recorders(self.folder)[0]), None
        with self.run():
            try:
                return self.journal.read(), None
            except RunFolderError as error:
                return self.journal.state, error

    def places(self, world_size: int = 0) -> RankPositions:
        """Return where ranks stand, and what is wrong with that; looked up again only after a while, as it is much to read.

        Args:
            world_size: how many ranks there are; 0: not known.
        """
        key = (self.stamp(), world_size)
        if key != self._placed_at[0] and time.monotonic() >= self._placed_at[1]:
            began = time.monotonic()
            with self.run() as run:
                found = placement(run)
            self._placed = RankPositions(found, placement_findings(found, world_size))
            now = time.monotonic()
            self._placed_at = (key, now + max(_PLACES_S, _PLACES_SHARE * (now - began)))
        return self._placed

    def stamp(self) -> Hashable:
        """Return what is different whenever anything in the folder is that answers are made from; see `Stamps`."""
        return self._stamps.now()

    def heard_at(self) -> float | None:
        """Return when anything was written last: journal, samples or logs; UTC epoch seconds of the file system's clock."""
        self._stamps.now()
        return self._stamps.heard_at

    def log_bytes(self) -> int:
        """Return how many bytes all logs have, which grows with every line."""
        return self._stamps.log_bytes

    def ended(self) -> bool:
        """Return whether nothing will be added any more."""
        if self.recording:
            return all_ended(self.folder, read_recorders(self.folder)[0])
        return self.state()[0].ended
