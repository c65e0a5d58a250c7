"""Listening, until told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cordee.errors import UsageError

if TYPE_CHECKING:
    import uvicorn

    from cordee.web.guard import Guard
    from cordee.web.peers import Ends, Peers

_DRAIN_S = 2
_BACKLOG = 256
_MOST_REQUESTS = 1000
_KEEP_ALIVE_S = 15


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any.

    Raises:
        UsageError: the address is none of this machine's, or the port cannot be had.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Named TCP, asyncio lets small answers go at once; unnamed, each waits 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        said = error.strerror or str(error)
        raise UsageError(
            f"cannot listen: {said}", given=f"{address} port {port}", next="choose another with --port"
        ) from None
    return listener


def serve(app: Guard, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, which also end open streams.

    Args:
        ready: called once requests are taken.
    """
    try:
        make_server(app, ready).run(sockets=[listener])
    except KeyboardInterrupt:
        return


def make_server(app: Guard, ready: Callable[[], None]) -> uvicorn.Server:
    """Return what serves; its `should_exit` ends it."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.close()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            app,
            http=_protocol(app.peers),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=_KEEP_ALIVE_S,
            limit_concurrency=_MOST_REQUESTS,
        )
    )


def _protocol(peers: Peers) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol that tells when connections begin and end."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        ends: Ends | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if self.client and self.server:
                client, server = self.client, self.server
                self.ends = ((str(client[0]), int(client[1])), (str(server[0]), int(server[1] or 0)))
                peers.opened(self.ends)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.ends is not None:
                peers.closed(self.ends)
            super().connection_lost(exc)

    return Protocol
