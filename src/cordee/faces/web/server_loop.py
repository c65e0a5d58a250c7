"""Listening, until told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from cordee.core.web import http_server
from cordee.core.web.http_server import REQUEST_S, listen

if TYPE_CHECKING:
    import uvicorn

    from cordee.faces.web.gate.guard import Guard

__all__ = ["REQUEST_S", "listen", "make_server", "serve"]


def serve(app: Guard, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, which also end open streams.

    Args:
        ready: called once requests are taken.
    """
    http_server.run(make_server(app, ready), listener)


def make_server(app: Guard, ready: Callable[[], None], request_s: float = REQUEST_S) -> uvicorn.Server:
    """Return what serves; its `should_exit` ends it.

    Args:
        request_s: how long a connection may take for its first request.
    """
    return http_server.make_server(app, ready, app.close, app.peers, request_s)
