"""Connections between nodes, at their end."""

from __future__ import annotations

import socket

from cordee.wire.peers import PeerListener


class LastConnection:
    """A listening socket that had taken a connection when it was closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connections = [connection]

    def accept(self) -> tuple[socket.socket, None]:
        if not self._connections:
            raise OSError("closed")
        return self._connections.pop(), None


def test_a_connection_that_is_taken_while_the_listener_closes_ends_with_it():
    listener = PeerListener("127.0.0.1", b"token", "n0", lambda peer, request: ({}, b""))
    listener.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there = server.accept()[0]
    with here, there:
        listener._socket = LastConnection(there)
        listener._accept()
        here.settimeout(10.0)
        assert here.recv(1) == b""
