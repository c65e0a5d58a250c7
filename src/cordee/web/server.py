"""What all routes of one server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordee.web.shelf import Shelf

if TYPE_CHECKING:
    from fastapi import Request

    from cordee.web.live import Hub


@dataclass(frozen=True)
class Server:
    """The runs that may be shown, and who follows them."""

    shelf: Shelf
    hub: Hub


def server_of(request: Request) -> Server:
    """Return the server that a request came to."""
    server: Server = request.app.state.cordee
    return server
