"""Connections between the nodes of a run: requests and answers, each with a body, between two ends that know one token.

Whoever connects hears a greeting with a nonce and proves by HMAC that it knows the token, and so does whoever listens. From
then on each frame carries a MAC over its number, its header and the digest of its body, so that nobody on the way can put
one in, leave one out or change a byte. Nothing is encrypted.

```
4 bytes header's length | 8 bytes body's length | header, JSON | MAC, 16 bytes | body
```
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
from typing import Any, Callable, Iterator, Optional, Union

from cordee.core.errors import WireError
from cordee.machine.foreign_files import parse_json
from cordee.wire.handshake import GREETING_S, is_proof, is_text, prove
from cordee.wire.ports import bind

MOST_BODY = 64 << 20
_MOST_HEADER = 1 << 20
_MOST_CONNECTIONS = 256
_LENGTHS = struct.Struct(">IQ")
_MAC_BYTES = DIGEST_BYTES = 16

Answer = Callable[[str, "dict[str, Any]"], "tuple[dict[str, Any], bytes]"]


class CorruptFrame(WireError):
    """What came is not what was sent: the connection goes on, and it may be asked for again."""


def digest_of(data: Union[bytes, bytearray]) -> bytes:
    """Return what a body is known by on these connections."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


class PeerStream:
    """One authenticated connection; one thread at a time uses it.

    Args:
        connection: after the greeting.
        key: of this connection.
        listens: whether this is the end that listened.
    """

    def __init__(self, connection: socket.socket, key: bytes, listens: bool) -> None:
        self._connection, self._key = connection, key
        self._own, self._others = (b"back", b"there") if listens else (b"there", b"back")
        self._sent = self._taken = 0

    def send(self, header: dict[str, Any], body: bytes = b"", digest: Optional[bytes] = None) -> None:
        """Send one frame.

        Args:
            digest: of the body as it should be, where that is known; else it is made now.

        Raises:
            OSError: the connection broke.
        """
        said = {**header, "digest": (digest or digest_of(body)).hex()} if body else header
        text = json.dumps(said).encode()
        mac = self._mac(self._own, self._sent, text, len(body))
        self._sent += 1
        self._connection.sendall(_LENGTHS.pack(len(text), len(body)) + text + mac)
        if body:
            self._connection.sendall(body)

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        """Return the next frame.

        Raises:
            CorruptFrame: its body is not what was sent.
            WireError: it was not sent by the other end of this connection.
            OSError: the connection broke, or nothing came in time.
        """
        header_bytes, body_bytes = _LENGTHS.unpack(_exactly(self._connection, _LENGTHS.size))
        if header_bytes > _MOST_HEADER or body_bytes > MOST_BODY:
            raise WireError("a peer sent a frame that is too long", given=f"{header_bytes} and {body_bytes} bytes")
        text = bytes(_exactly(self._connection, header_bytes))
        mac = bytes(_exactly(self._connection, _MAC_BYTES))
        if not hmac.compare_digest(mac, self._mac(self._others, self._taken, text, body_bytes)):
            raise WireError("a frame was not sent by the peer", next="look who else is on this network")
        self._taken += 1
        header: dict[str, Any] = json.loads(text)
        body = _exactly(self._connection, body_bytes)
        if body and digest_of(body).hex() != header.get("digest"):
            raise CorruptFrame(
                "what a peer sent was changed on the way, or before it was sent", given=str(header)[:200]
            )
        return header, body

    def wait(self, seconds: Optional[float]) -> None:
        """Give up from now on what does not come within so many seconds; None: wait for ever."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        """End the connection; whoever waits on it is told."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _mac(self, way: bytes, number: int, text: bytes, body_bytes: int) -> bytes:
        about = way + struct.pack(">QQ", number, body_bytes) + text
        return hashlib.blake2b(about, key=self._key, digest_size=_MAC_BYTES).digest()


def connect(address: str, port: int, token: bytes, node: str, peer: str, timeout_s: float) -> PeerStream:
    """Connect to a peer.

    Args:
        token: that both ends know.
        node, peer: this node's name, and the one of whoever should listen there.
        timeout_s: for the connection and for each answer.

    Raises:
        WireError: whoever listens does not know the token, or is another node.
        OSError: nobody listens there, or the connection broke.
    """
    connection = socket.create_connection((address, port), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = _hear(connection)
        about = [str(greeting.get("nonce"))[:64], secrets.token_hex(16), node, peer]
        _say(connection, {"nonce": about[1], "node": node, "proof": prove(token, "peer there", about).hex()})
        if not is_proof(_hear(connection).get("proof"), prove(token, "peer back", about)):
            raise WireError("whoever listens in a peer's place does not know the token", given=f"{peer} at {address}")
        return PeerStream(connection, prove(token, "peer key", about), listens=False)
    except BaseException:
        connection.close()
        raise


class PeerListener:
    """Answers requests of peers until it is closed, each connection in a thread of its own.

    Args:
        host: the address that peers connect to.
        token: that they must know.
        node: this node's name.
        answer: called with the peer's name and its request; returns header and body, and, in the header under `digest`, the
            body's digest where that is known. What it raises ends that connection.

    Raises:
        WireError: no port is free at that address.
    """

    def __init__(self, host: str, token: bytes, node: str, answer: Answer) -> None:
        self._token, self._node, self._answer = token, node, answer
        self._socket = bind(host, None)
        self._socket.listen(_MOST_CONNECTIONS)
        self.port = int(self._socket.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, name="cordee-peers", daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            with self._lock:
                if self._closed or len(self._open) >= _MOST_CONNECTIONS:
                    connection.close()
                    continue
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="cordee-peer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, WireError, ValueError), self._counted(connection):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer, stream = self._let_in(connection)
            while True:
                header, body = self._answer(peer, stream.receive()[0])
                digest = header.pop("digest", None)
                stream.send(header, body, digest)

    @contextlib.contextmanager
    def _counted(self, connection: socket.socket) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _let_in(self, connection: socket.socket) -> tuple[str, PeerStream]:
        connection.settimeout(GREETING_S)
        nonce = secrets.token_hex(16)
        _say(connection, {"nonce": nonce})
        said = _hear(connection)
        peer, own = said.get("node"), said.get("nonce")
        if not (is_text(peer, 256) and is_text(own, 64)):
            raise WireError("a stranger connected")
        about = [nonce, own, peer, self._node]
        if not is_proof(said.get("proof"), prove(self._token, "peer there", about)):
            raise WireError("a stranger connected")
        _say(connection, {"proof": prove(self._token, "peer back", about).hex()})
        connection.settimeout(None)
        return str(peer), PeerStream(connection, prove(self._token, "peer key", about), listens=True)


def _say(connection: socket.socket, line: dict[str, Any]) -> None:
    connection.sendall(json.dumps(line).encode() + b"\n")


def _hear(connection: socket.socket) -> dict[str, Any]:
    """Return a line of the greeting, byte by byte: what follows it is a frame already."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece or len(line) > 1000:
            raise WireError("whoever is there does not greet as a peer does")
        line += piece
    said = parse_json(bytes(line))
    if not isinstance(said, dict):
        raise WireError("whoever is there does not greet as a peer does")
    return said


def _exactly(connection: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        got = connection.recv_into(view[done:])
        if not got:
            raise ConnectionResetError("the peer ended the connection")
        done += got
    return data
