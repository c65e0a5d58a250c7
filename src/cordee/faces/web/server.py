"""What all routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordee.faces.web.cache import Cache
from cordee.faces.web.cluster_status import Site
from cordee.faces.web.library import Shelf
from cordee.systems.score.child import Scores

if TYPE_CHECKING:
    from fastapi import Request

    from cordee.faces.web.live import Hub


@dataclass(frozen=True)
class Server:
    """The runs that may be shown, who follows them, their scores, the site around them, and answers to give again."""

    shelf: Shelf
    hub: Hub
    scores: Scores
    site: Site
    cache: Cache

    def close(self) -> None:
        """End streams and children."""
        self.hub.close()
        self.scores.close()


def server_of(request: Request) -> Server:
    """Return the server that a request came to."""
    server: Server = request.app.state.cordee
    return server
