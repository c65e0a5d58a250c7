"""Connections in memory with the manners of `wire.Connection`, and what may happen to them on the way."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

from cordee import wire
from cordee.core.errors import WireError
from cordee.wire import connection as real
from cordee.wire.handshake import GREETING_S
from support.simulation.loop import VirtualLoop, VirtualProcess

_LEAST_S, _MOST_S = 0.0002, 0.003
_APART_S = 1e-6
_UNANSWERED_S = real._UNANSWERED_MS / 1000


class VirtualConnection:
    """One end of a connection; see `wire.Connection`, whose attributes and functions these are."""

    def __init__(self, network: VirtualNetwork, node: str, to_node: bool) -> None:
        self.on_message: Any = None
        self.on_close: Any = None
        self.peer_role = self.peer_name = self.peer_address = ""
        self.peer_epoch = 0
        self.close_reason: str | None = None
        self.authenticated, self.closed, self.buffered_bytes = True, False, 0
        self.process = VirtualProcess.here()
        self.peer: VirtualConnection
        self.node, self.to_node = node, to_node
        self._network = network
        self._last_s = 0.0
        self._torn = False
        self._ended = asyncio.get_running_loop().create_future()
        if self.process is not None:
            self.process.at_end.append(self._process_ended)

    def send(self, message: dict[str, Any], body: bytes = b"") -> bool:
        """See `wire.Connection.send`."""
        if self.closed:
            return False
        text = json.dumps(message)
        if len(text) + len(body) > real.MAX_FRAME_BYTES - 100:
            raise WireError("a message is too large", given=f"{len(text) + len(body)} bytes")
        self._network.carry(self, json.loads(text), body)
        return True

    async def drain(self) -> None:
        """Return at once."""

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._ended)

    def close(self, reason: str = "") -> None:
        """Say goodbye and end."""
        if self.closed:
            return
        self.close_reason = reason
        self._network.carry(self, None, reason.encode())
        self.closed = True
        self._network.loop.call_later(5.0, self.lose, None, context=self._context)

    def abort(self, reason: str) -> None:
        """End at once, without a goodbye; `on_close` is told soon."""
        if not self.closed:
            self.closed = True
            self._network.later(self, self.peer.lose, WireError("the connection was reset"))
            self._network.loop.call_soon(self.lose, WireError(reason), context=self._context)

    @property
    def _context(self) -> Any:
        return self.process.context if self.process is not None else None

    def take(self, message: dict[str, Any] | None, body: bytes) -> None:
        """Take what has arrived."""
        if self._ended.done() or (self.closed and message is not None):
            return
        if self._torn:
            self.abort("a frame does not follow the one before")
        elif message is None:
            self.close_reason = body.decode()
            self.closed = True
            self._network.later(self, self.peer.lose, None)
            self.lose(None)
        else:
            try:
                self.on_message(self, message, body)
            except Exception as error:
                self._network.loop.call_exception_handler({"message": f"{message.get('t')!r}", "exception": error})
                self.abort(f"the message {message.get('t')!r} could not be handled: {error!r}")

    def tear(self) -> None:
        """Something on the way to here was lost: the next frame will not follow the one before."""
        self._torn = True

    def lose(self, error: WireError | None) -> None:
        """The connection has ended."""
        if self._ended.done():
            return
        self.closed = True
        self._ended.set_result(None)
        self._network.ends.pop(self, None)
        if self.on_close is not None:
            self.on_close(self, error)

    def _process_ended(self) -> None:
        """The kernel of a living machine resets the connections of a process that is gone; that of a dead one says nothing."""
        if not self.closed and not self._network.is_dark(self.node):
            self._network.later(self, self.peer.lose, WireError("the peer went away without a goodbye"))
        self.closed = True
        self._network.ends.pop(self, None)

    def arrival_s(self) -> float:
        """Return when what is sent now arrives: never before what was sent earlier."""
        self._last_s = max(self._last_s + _APART_S, self._network.loop.now + self._network.latency_s(self.node))
        return self._last_s


class VirtualServer:
    """The listening end; see `wire.Server`."""

    def __init__(self, network: VirtualNetwork, token: bytes, epoch: int, on_connect: Callable[[Any], None]) -> None:
        self.token, self.epoch, self.on_connect = token, epoch, on_connect
        self.process = VirtualProcess.here()
        self._network = network
        self.address, self.port = "127.0.0.1", 20000 + len(network.servers)
        self.connections: dict[VirtualConnection, None] = {}
        network.servers[self.port] = self

    def close(self, reason: str = "") -> None:
        """Stop listening and say goodbye to everybody."""
        self._network.servers.pop(self.port, None)
        for end in list(self.connections):
            end.close(reason)


class VirtualNetwork:
    """All connections of a simulation.

    Args:
        loop: of the simulation.
        chance: for how long things take.

    Attributes:
        observers: called with (end that sends, message) for each message, before it is sent.
        ways: what happens on the way to and from a node: `hold` keeps, `swallow` loses.
        double: nodes of which the next numbered message, in either direction, comes twice.
        losing: nodes of which the next message, in either direction, is lost with its connection.
        delay_s: how much longer messages of a node take.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop, self._chance = loop, chance
        self.servers: dict[int, VirtualServer] = {}
        self.ends: dict[VirtualConnection, None] = {}
        self.observers: list[Callable[[VirtualConnection, dict[str, Any]], None]] = []
        self.ways: dict[tuple[str, bool], str] = {}
        self.delay_s: dict[str, float] = {}
        self.dark: set[str] = set()
        self.double: set[str] = set()
        self.losing: set[str] = set()
        self._kept: dict[tuple[str, bool], list[tuple[VirtualConnection, dict[str, Any] | None, bytes]]] = {}

    def is_dark(self, node: str) -> bool:
        """Return whether nothing is heard of a node any more."""
        return node in self.dark

    def latency_s(self, node: str) -> float:
        """Return how long a message takes."""
        return self._chance.uniform(_LEAST_S, _MOST_S) + self.delay_s.get(node, 0.0)

    def listen(self, token: bytes, epoch: int, on_connect: Callable[[Any], None]) -> VirtualServer:
        """See `Place.listen`."""
        return VirtualServer(self, token, epoch, on_connect)

    def before(self, place: wire.Rendezvous) -> wire.Rendezvous:
        """Return where the supervisor before this one listens, or this one."""
        former = (server for server in self.servers.values() if server.epoch < place.epoch)
        server = max(former, key=lambda server: server.epoch, default=place)
        return place._replace(port=server.port, epoch=server.epoch, token=server.token)

    async def connect(self, place: wire.Rendezvous, node: str, on_message: Any, on_close: Any) -> VirtualConnection:
        """See `wire.connect`."""
        await asyncio.sleep(3 * self.latency_s(node))
        if node in self.dark or any((node, way) in self.ways for way in (True, False)):
            await asyncio.sleep(GREETING_S)
            raise WireError(f"no answer within {GREETING_S:g} s")
        server = self.servers.get(place.port)
        if server is None or server.process is None or not server.process.alive:
            raise WireError("cannot connect: connection refused")
        if server.process.paused:
            await asyncio.sleep(GREETING_S)
            raise WireError(f"no answer within {GREETING_S:g} s")
        if server.token != place.token or server.epoch != place.epoch:
            raise WireError("the server refused: the proof is wrong")
        mine = VirtualConnection(self, node, False)
        theirs = server.process.context.run(VirtualConnection, self, node, True)
        mine.peer, theirs.peer = theirs, mine
        mine.on_message, mine.on_close = on_message, on_close
        theirs.peer_role, theirs.peer_name, theirs.peer_address = "agent", node, f"10.0.0.{node}"
        theirs.peer_epoch = mine.peer_epoch = server.epoch
        mine.peer_role = "server"
        self.ends[theirs] = self.ends[mine] = None
        server.connections[theirs] = None
        server.process.context.run(server.on_connect, theirs)
        return mine

    def carry(self, end: VirtualConnection, message: dict[str, Any] | None, body: bytes) -> None:
        """Bring a message to the other end, or not."""
        way = (end.node, end.to_node)
        for observer in self.observers if message is not None else ():
            observer(end, message or {})
        if message is not None and end.node in self.losing:
            self.losing.discard(end.node)
            self.cut(end.node)
        elif self.ways.get(way) == "swallow" or end.node in self.dark:
            end.peer.tear()
            self._unanswered(end)
        elif self.ways.get(way) == "hold":
            self._kept.setdefault(way, []).append((end, message, body))
            self._unanswered(end)
        else:
            for _ in range(1 + self._doubles(end.node, message)):
                self.loop.call_at(end.arrival_s(), end.peer.take, message, body, context=end.peer._context)

    def _doubles(self, node: str, message: dict[str, Any] | None) -> bool:
        doubles = node in self.double and "n" in (message or {})
        if doubles:
            self.double.discard(node)
        return doubles

    def _unanswered(self, end: VirtualConnection) -> None:
        if not end.closed:
            self.loop.call_later(_UNANSWERED_S, self._give_up, end, context=end._context)

    def _give_up(self, end: VirtualConnection) -> None:
        if not end.closed and ((end.node, end.to_node) in self.ways or end.node in self.dark):
            end.abort("the peer has not acknowledged anything for too long")

    def later(self, end: VirtualConnection, callback: Callable[..., None], *args: Any) -> None:
        """Have the other end learn something after what was sent before, unless nothing gets there."""
        if (end.node, end.to_node) in self.ways or end.node in self.dark:
            return
        self.loop.call_at(end.arrival_s(), callback, *args, context=end.peer._context)

    def cut(self, node: str, sides: tuple[bool, ...] = (True, False)) -> bool:
        """Break the connections of a node, as a reset does; with one side only the other does not learn of it.

        Returns:
            Whether there was one.
        """
        ends = [end for end in self.ends if end.node == node and end.to_node in sides]
        for end in ends:
            self.loop.call_soon(end.lose, WireError("connection reset by peer"), context=end._context)
            end.closed = True
        return bool(ends)

    def heal(self, node: str, to_node: bool) -> None:
        """Let messages through again; those that were held come now, in their order."""
        way = (node, to_node)
        self.ways.pop(way, None)
        for end, message, body in self._kept.pop(way, []):
            if not end.peer.closed:
                self.loop.call_at(end.arrival_s(), end.peer.take, message, body, context=end.peer._context)
