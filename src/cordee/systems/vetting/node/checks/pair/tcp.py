"""Two ends that measure the TCP bandwidth between them, one direction after the other.

Three connections, each with a mutual proof that both ends know the token: `control`, on which each receiver tells what it
measured, and one for each direction, which carries nothing but data until its receiver has seen enough. Nothing waits for
buffers to drain: a slow network is measured in the same time as a fast one.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
import socket
import time
from typing import Any, NamedTuple

from cordee.systems.vetting.node.checks._base import CannotTest
from cordee.systems.vetting.node.checks.pair.lines import Control, Stranger, words
from cordee.wire.handshake import is_proof, prove

_USES = ("control", "there", "back")
_MOST_STRANGERS = 64
_ATTEMPT_S = 2.0
_PAUSE_S = 0.05
_BUFFER_BYTES = 1 << 20
_WARM_UP_SHARE = 0.1


class Rates(NamedTuple):
    """Bytes per second from the end that connects to the one that listens (`there`), and back."""

    there: float
    back: float


class PairEnd:
    """One end of a measurement.

    Args:
        token: the secret that both ends know.
        node, peer: names of this end and of the other.
        seconds: how long each direction is measured.
        piece_bytes: how much is written at once.
        until: monotonic time by which all must be over.
    """

    def __init__(self, token: bytes, node: str, peer: str, seconds: float, piece_bytes: int, until: float) -> None:
        self._token = token
        self._node, self._peer = node, peer
        self._seconds = seconds
        self._piece = memoryview(os.urandom(piece_bytes))
        self._until = until

    def listen(self, address: str, port: int) -> Rates:
        """Wait for the other end on a port and measure with it.

        Raises:
            CannotTest: it did not come in time (`silent`), or the connection broke.
        """
        listening = _bind(address, port)
        try:
            by_use = self._accept_all(listening)
        finally:
            listening.close()
        control = Control(by_use["control"], self._until, self._peer)
        there = self._receive(by_use["there"])
        by_use["there"].close()
        control.say({"bytes_per_s": there})
        self._send(by_use["back"], by_use["control"])
        return Rates(there, control.hear())

    def connect(self, address: str, port: int) -> Rates:
        """Find the other end and measure with it.

        Raises:
            CannotTest: it cannot be reached, it is somebody else, or the connection broke.
        """
        by_use = {use: self._dial(address, port, use) for use in _USES}
        control = Control(by_use["control"], self._until, self._peer)
        self._send(by_use["there"], by_use["control"])
        there = control.hear()
        back = self._receive(by_use["back"])
        by_use["back"].close()
        control.say({"bytes_per_s": back})
        return Rates(there, back)

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _receive(self, connection: socket.socket) -> float:
        """Return the rate at which data came, in bytes per second, the first tenth of the time left out."""
        buffer = bytearray(_BUFFER_BYTES)
        connection.settimeout(self._left() or 0.001)
        self._take(connection, buffer)
        began = time.monotonic() + _WARM_UP_SHARE * self._seconds
        end = min(began + (1 - _WARM_UP_SHARE) * self._seconds, self._until)
        count = 0
        while (now := time.monotonic()) < end:
            connection.settimeout(end - now)
            try:
                size = self._take(connection, buffer)
            except CannotTest:
                if time.monotonic() < end:
                    raise
                break
            if time.monotonic() >= began:
                count += size
        return count / max(time.monotonic() - began, 1e-6)

    def _take(self, connection: socket.socket, buffer: bytearray) -> int:
        try:
            count = connection.recv_into(buffer)
        except socket.timeout:
            raise CannotTest(f"{self._peer} sent no data in time", "timeout") from None
        except OSError as error:
            raise CannotTest(f"the connection to {self._peer} broke: {words(error)}", "error") from None
        if count == 0:
            raise CannotTest(f"{self._peer} ended the connection", "error")
        return count

    def _send(self, connection: socket.socket, control: socket.socket) -> None:
        """Send until the other end says on the control connection what it has measured."""
        connection.setblocking(False)
        while self._left():
            readable, writable, _ = select.select([control], [connection], [], self._left())
            if readable:
                break
            if writable:
                try:
                    connection.send(self._piece)
                except BlockingIOError:
                    continue
                except OSError:  # the other end has seen enough; it says so on the control connection
                    break
        select.select([control], [], [], self._left())
        connection.close()

    def _dial(self, address: str, port: int, use: str) -> socket.socket:
        patience = self._until - 2 * self._seconds
        began, last = time.monotonic(), "no time was left"
        while True:
            attempt = min(_ATTEMPT_S, patience - time.monotonic())
            if attempt <= 0:
                waited = time.monotonic() - began
                raise CannotTest(
                    f"cannot reach {self._peer} at {address}:{port} within {waited:.3g} s: {last}", "error"
                )
            try:
                connection = socket.create_connection((address, port), timeout=attempt)
            except OSError as error:
                last = words(error)
                time.sleep(min(_PAUSE_S, max(0.0, patience - time.monotonic())))
                continue
            control = Control(connection, self._until, self._peer)
            try:
                greeting = control.hear_line()
            except CannotTest as obstacle:  # something on the way took the connection: nobody listens behind it yet
                last = str(obstacle)
                connection.close()
                time.sleep(min(_PAUSE_S, max(0.0, patience - time.monotonic())))
                continue
            self._introduce(control, greeting, use)
            return connection

    def _introduce(self, control: Control, greeting: dict[str, Any], use: str) -> None:
        own = secrets.token_hex(16)
        about = [str(greeting.get("nonce"))[:64], own, use, self._node, self._peer]
        control.say(
            {"nonce": own, "use": use, "node": self._node, "proof": prove(self._token, "pair there", about).hex()}
        )
        if not is_proof(control.hear_line().get("proof"), prove(self._token, "pair back", about)):
            raise CannotTest(f"whoever listens in place of {self._peer} does not know the token", "error")

    def _accept_all(self, listening: socket.socket) -> dict[str, socket.socket]:
        """Return the connections of the other end by their use; strangers neither end nor delay the waiting."""
        strangers: dict[socket.socket, Stranger] = {}
        found: dict[str, socket.socket] = {}
        while len(found) < len(_USES):
            if not self._left():
                came = f"only {', '.join(found)} of its connections came" if found else "did not come"
                raise CannotTest(f"{self._peer} {came} in time", "silent")
            ready = select.select([listening, *strangers], [], [], min(1.0, self._left()))[0]
            for connection in ready:
                if connection is listening:
                    _accept(listening, strangers)
                    continue
                use = strangers[connection].answer(self._token, self._node, self._peer)
                if use is None:
                    continue
                del strangers[connection]
                if use in _USES and use not in found:
                    found[use] = connection
                else:
                    connection.close()
            _drop_old(strangers)
        for connection in strangers:
            connection.close()
        return found


def _bind(address: str, port: int) -> socket.socket:
    """Return a socket that listens; on all addresses where the one that others use is not this machine's own."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(where)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listening.bind(("", port))
        listening.listen(_MOST_STRANGERS)
    except OSError as error:
        raise CannotTest(f"cannot listen at {address}:{port}: {words(error)}", "error") from None
    listening.setblocking(False)
    return listening


def _accept(listening: socket.socket, strangers: dict[socket.socket, Stranger]) -> None:
    try:
        new = listening.accept()[0]
    except OSError:  # it left before it was let in
        return
    new.setblocking(False)
    strangers[new] = Stranger(new)


def _drop_old(strangers: dict[socket.socket, Stranger]) -> None:
    """Close those who took too long, and the oldest when there are too many."""
    now = time.monotonic()
    for place, (connection, stranger) in enumerate(list(strangers.items())):
        if stranger.until < now or place < len(strangers) - _MOST_STRANGERS:
            connection.close()
            del strangers[connection]
