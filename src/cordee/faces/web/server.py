"""What all routes of one server share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.faces.web.answers.cache import Cache
from cordee.faces.web.cluster_status import RunsSite
from cordee.faces.web.runs.library import RunLibrary
from cordee.telemetry.shown.server_parts import P, ServerPart

if TYPE_CHECKING:
    from fastapi import Request

    from cordee.faces.web.live import Hub


@dataclass(frozen=True)
class RunsServer:
    """The runs that may be shown, who follows them, the site around them, answers to give again, and what systems keep."""

    shelf: RunLibrary
    hub: Hub
    site: RunsSite
    cache: Cache
    _parts: dict[Callable[[], ServerPart], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def part(self, make: Callable[[], P]) -> P:
        """Return what a system keeps here; see `Serving`."""
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make()
            part: P = self._parts[make]
            return part

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
