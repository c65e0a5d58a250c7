"""What all routes of one server share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.faces.report.completion import may_store, unfinished
from cordee.faces.web.answers.cache import Cache
from cordee.faces.web.cluster_status import RunsSite
from cordee.faces.web.runs.library import RunLibrary
from cordee.faces.web.runs.open_run import Reading
from cordee.telemetry.shown.computed_answers import ComputedDocuments
from cordee.telemetry.shown.server_parts import P, ServerPart

if TYPE_CHECKING:
    from fastapi import Request

    from cordee.faces.web.live import Hub


class Completions(ComputedDocuments):
    """Runs that are sealed and reported, one at a time."""

    module, what, command = "cordee.faces.report.completion", "the report", "cordee report"


@dataclass(frozen=True)
class RunsServer:
    """The runs that may be shown, who follows them, the site around them, answers to give again, and what systems keep.

    Attributes:
        completes: whether runs that are shown and have no report get it; else nothing is ever written.
    """

    shelf: RunLibrary
    hub: Hub
    site: RunsSite
    cache: Cache
    completes: bool = False
    _parts: dict[Callable[[], ServerPart], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def part(self, make: Callable[[], P]) -> P:
        """Return what a system keeps here; see `Serving`."""
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make()
            part: P = self._parts[make]
            return part

    def complete(self, run: str, reading: Reading) -> None:
        """Have a run that has ended sealed and reported beside the server, one at a time, where its end left that to be done."""
        if not self.completes or reading.recording or not may_store(reading.folder):
            return
        state = reading.state()[0]
        if unfinished(reading.folder, state):
            self.part(Completions).ask(f"{run} {state.ended_at}", reading.folder, ended=True)

    def close(self) -> None:
        """End streams, and what systems have started."""
        self.hub.close()
        with self._lock:
            for part in self._parts.values():
                part.close()


def server_of(request: Request) -> RunsServer:
    """Return the server that a request came to."""
    server: RunsServer = request.app.state.cordee
    return server
