"""An HTTP server that strangers cannot keep from its users: whoever connects and asks nothing loses the connection.

A connection waits while it has no request that is complete. It may do so for some seconds, and only so many may at a time:
above that, those go first that belong to whoever holds the most, the oldest first. So somebody who opens a thousand
connections closes their own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import socket
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError
from cordee.core.web.peers import Ends, Peers, socket_owners

if TYPE_CHECKING:
    import uvicorn

REQUEST_S = 10.0
KEEP_ALIVE_S = 15.0
BODY_S = 300.0
MOST_WAITING = 512
_MOST_REQUESTS = 2000
_BACKLOG = 128
_DRAIN_S = 2
_END_S = 3.0
_MOST_FILES = 4096


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


def make_server(
    app: Any,
    ready: Callable[[], None] = lambda: None,
    close: Callable[[], None] = lambda: None,
    peers: Peers | None = None,
    request_s: float = REQUEST_S,
    most_waiting: int = MOST_WAITING,
) -> uvicorn.Server:
    """Return what serves an ASGI application; its `should_exit` ends it.

    Args:
        ready: called once requests are taken.
        close: called when it ends; ends what would not end by itself.
        peers: is told of connections that begin and end.
        request_s: how long a connection may take for its first request, without the body.
        most_waiting: how many connections may wait at a time.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            close()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            app,
            http=_protocol(Waiting(most_waiting), peers, request_s),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            limit_concurrency=_MOST_REQUESTS,
        )
    )


def run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, in the main thread; they end the process though threads hang, as in a file system."""
    told = server.handle_exit

    def end(sig: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_DRAIN_S + _END_S, os._exit, [128 + sig])
        timer.daemon = True
        timer.start()
        told(sig, frame)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MOST_FILES:
        most = _MOST_FILES if hard < 0 else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    server.handle_exit = end  # type: ignore[method-assign]
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        return


class Waiting:
    """The connections that wait, the oldest first; `most` at a time.

    Args:
        most: as `make_server`; where there are more, half of it stays.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[Any, Ends] = {}
        self._users: dict[Any, int] = {}

    def add(self, connection: Any, ends: Ends) -> None:
        """Note that a connection waits from now on; `abort` is called of those that have to go for it."""
        self._ends[connection] = ends
        if len(self._ends) > self._most:
            self._thin()

    def remove(self, connection: Any) -> None:
        """Note that a connection waits no more."""
        self._ends.pop(connection, None)
        self._users.pop(connection, None)

    def _thin(self) -> None:
        self._find_users()
        parties = {connection: self._party(connection) for connection in self._ends}
        counts = Counter(parties.values())
        left = self._most // 2
        while len(self._ends) > left:
            largest, _ = counts.most_common(1)[0]
            below = max([count for party, count in counts.items() if party != largest], default=0)
            going = max(1, min(counts[largest] - below, len(self._ends) - left))
            for connection in [one for one, party in parties.items() if party == largest][:going]:
                del parties[connection]
                self.remove(connection)
                connection.abort()
            counts[largest] -= going

    def _party(self, connection: Any) -> tuple[str, str | int]:
        """Return whom a connection is counted for: a user of this machine, else an address, with IPv6 its network."""
        if connection in self._users:
            return "user", self._users[connection]
        address = ipaddress.ip_address(self._ends[connection][0][0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
            return "network", str(ipaddress.ip_network((address, 64), strict=False))
        return "address", str(address)

    def _find_users(self) -> None:
        """Find out whose the connections from this machine are."""
        unknown = {ends: one for one, ends in self._ends.items() if one not in self._users}
        here = [ends for ends in unknown if ipaddress.ip_address(ends[0][0]).is_loopback]
        self._users.update({unknown[ends]: user for ends, user in socket_owners(here).items()} if here else {})


def _protocol(waiting: Waiting, peers: Peers | None, request_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, with an end to waiting."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        _ends: Ends | None = None
        _timer: asyncio.TimerHandle | None = None
        _phase = ""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if self.client and self.server:
                client, server = self.client, self.server
                self._ends = ((str(client[0]), int(client[1])), (str(server[0]), int(server[1] or 0)))
                if peers is not None:
                    peers.opened(self._ends)
            self._enter("request", request_s)

        def connection_lost(self, exc: Exception | None) -> None:
            self._enter("", None)
            if self._ends is not None and peers is not None:
                peers.closed(self._ends)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def abort(self) -> None:
            self._enter("", None)
            self.transport.abort()

        def _look(self) -> None:
            """Wait for what comes next; single bytes of it prolong nothing."""
            if self.transport.is_closing():
                return
            if self.cycle is None:
                self._enter("request", request_s)
            elif self.cycle.response_complete:
                self._enter("next", KEEP_ALIVE_S)
            elif self.cycle.more_body:
                self._enter("body", BODY_S)
            else:
                self._enter("answer", None)

        def _enter(self, phase: str, patience_s: float | None) -> None:
            if phase == self._phase:
                return
            self._phase = phase
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if patience_s is None else self.loop.call_later(patience_s, self.abort)
            if phase in ("request", "next") and self._ends is not None:
                waiting.add(self, self._ends)
            else:
                waiting.remove(self)

    return Protocol
