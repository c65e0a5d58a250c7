"""The listening end: strangers cost a little memory for a few seconds and delay nobody."""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter
from typing import Any, Callable, Optional, Union

from cordee.core.errors import WireError
from cordee.wire.connection import Connection
from cordee.wire.handshake import GREETING_S, PROTOCOL, ROLES, is_proof, is_text, prove, version_text
from cordee.wire.ports import bind

PATIENT_STRANGERS = 64
MAX_STRANGERS = 1024
CROWDED_S = 1.0


class _Incoming(Connection):
    """The server's end of a connection: a stranger until it has proved that it knows the token."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._nonce = os.urandom(16).hex()
        self._timer: Optional[asyncio.TimerHandle] = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        strangers = self._server.strangers
        crowd = strangers.get(self.peer_address, {})
        # Whoever has been silent longest makes room: a peer that knows the token proves it at once.
        if len(crowd) >= MAX_STRANGERS:
            next(iter(crowd))._crowded_out()
        crowd = strangers.setdefault(self.peer_address, crowd)
        crowd[self] = None
        self._greet = self._answer
        patience = GREETING_S if len(crowd) <= PATIENT_STRANGERS else CROWDED_S
        self._timer = asyncio.get_running_loop().call_later(patience, self._expire)
        self._say({"cordee": PROTOCOL, "nonce": self._nonce})

    def connection_lost(self, error: Optional[BaseException]) -> None:
        super().connection_lost(error)
        if self._seal is None:
            self._no_stranger()
            self._server.refuse(self, self._error.text if self._error else "left before it proved anything")
        else:
            self._server.connections.discard(self)

    def _expire(self) -> None:
        self._fail(WireError("said nothing that proves it knows the token in time"))

    def _crowded_out(self) -> None:
        self._no_stranger()
        self._fail(WireError("too many unauthenticated connections"))

    def _no_stranger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        strangers = self._server.strangers
        crowd = strangers.get(self.peer_address, {})
        crowd.pop(self, None)
        if not crowd:
            strangers.pop(self.peer_address, None)

    def _answer(self, hello: dict[str, Any]) -> None:
        version = hello.get("cordee")
        if version != PROTOCOL:
            self._turn_away(version_text(version))
            return
        role, name, nonce, epoch = (hello.get(key) for key in ("role", "name", "nonce", "epoch"))
        shaped = role in ROLES and is_text(name, 256) and is_text(nonce, 64) and isinstance(epoch, int)
        about = [PROTOCOL, self._nonce, nonce, role, name, epoch]
        if not shaped or not is_proof(hello.get("proof"), prove(self._server.token, "client", about)):
            self._turn_away("the proof is wrong: this peer does not know the token")
        elif self._server.epoch is not None and epoch != self._server.epoch:
            self._turn_away(f"epoch {epoch} is not served here; the epoch is now {self._server.epoch}")
        else:
            self._no_stranger()
            self.peer_role, self.peer_name, self.peer_epoch = str(role), str(name), int(str(epoch))
            self._say({"proof": prove(self._server.token, "server", about).hex()})
            self._trust(*(prove(self._server.token, label, about) for label in ("s2c", "c2s")))
            if role == "agent":
                self._end_when_unanswered()
            self._server.connections.add(self)
            self._server.on_connect(self)

    def _turn_away(self, text: str) -> None:
        self._error = WireError(text)
        self._say({"error": text})
        self._ending = True
        self._transport.close()


class Server:
    """Listens for agents and clients; strangers cost it a little memory for a few seconds and delay nobody.

    Attributes:
        address, port: where it listens.
        connections: the authenticated connections that are open.
        strangers: the unauthenticated connections of each address, the oldest first.
        refused: how often each reason for turning a peer away has occurred.
    """

    def __init__(
        self,
        token: bytes,
        epoch: Optional[int],
        on_connect: Callable[[Connection], None],
        on_refused: Optional[Callable[[str, str], None]],
    ) -> None:
        self.token = token
        self.epoch = epoch
        self.on_connect = on_connect
        self.address = ""
        self.port = 0
        self.connections: set[Connection] = set()
        self.strangers: dict[str, dict[_Incoming, None]] = {}
        self.refused: Counter[str] = Counter()
        self._on_refused = on_refused
        self._listener: Optional[asyncio.AbstractServer] = None

    async def start(self, host: str, port: Union[int, tuple[int, int], None]) -> None:
        """Listen; see `serve`."""
        listening = bind(host, port)
        listening.setblocking(False)
        self.address, self.port = listening.getsockname()[:2]
        _allow_many_files()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Incoming(self), sock=listening, backlog=1024)

    def refuse(self, connection: Connection, reason: str) -> None:
        """Count a peer that was turned away."""
        self.refused[reason if len(self.refused) < 100 or reason in self.refused else "other reasons"] += 1
        if self._on_refused is not None:
            self._on_refused(connection.peer_address, reason)

    def close(self, reason: str = "") -> None:
        """Stop listening and say goodbye to everybody."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close(reason)

    async def wait_closed(self) -> None:
        """Wait until all authenticated connections have ended."""
        for connection in list(self.connections):
            await connection.wait_closed()


async def serve(
    host: str,
    port: Union[int, tuple[int, int], None],
    token: bytes,
    on_connect: Callable[[Connection], None],
    *,
    epoch: Optional[int] = None,
    on_refused: Optional[Callable[[str, str], None]] = None,
) -> Server:
    """Listen for peers that know the token.

    Args:
        host: address to bind; one of this machine's.
        port: a port, a range (first, last) of which a free one is taken, or None for the range 20000-32000.
        on_connect: called as `(connection)` once a peer is authenticated; sets its `on_message` and `on_close`.
        epoch: peers of another epoch are refused by name; None accepts all.
        on_refused: called as `(address, reason)` for every peer that is turned away or leaves without a proof.

    Raises:
        WireError: no port is free, or the address is not one of this machine's.
    """
    server = Server(token, epoch, on_connect, on_refused)
    await server.start(host, port)
    return server


def _allow_many_files() -> None:
    """Raise the soft limit on open files to the hard one: a supervisor holds one connection per node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
