"""Listening, until told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from cordee.errors import UsageError

if TYPE_CHECKING:
    from cordee.web.guard import App

_DRAIN_S = 2


def serve(app: App, address: str, port: int, said: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; `said` gets address and port once it listens.

    Raises:
        UsageError: the port cannot be had.
    """
    import uvicorn

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen: {error.strerror}", given=f"{address} port {port}", next="choose another with --port"
        ) from None
    said(address, listener.getsockname()[1])
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_DRAIN_S,
        timeout_keep_alive=15, limit_concurrency=1000,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])
