"""How two ends of a measurement introduce themselves: JSON lines, and a proof that both know the token."""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import Any, Optional

from cordee.machine.foreign_files import parse_json
from cordee.systems.vetting.node.checks._base import CannotTest
from cordee.wire.handshake import is_proof, is_text, prove

STRANGER_S = 5.0
_LONGEST_LINE = 4096


class Stranger:
    """A connection that has proved nothing yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = time.monotonic() + STRANGER_S
        self._connection = connection
        self._nonce = secrets.token_hex(16)
        self._heard = b""
        _try_send(connection, {"nonce": self._nonce})

    def answer(self, token: bytes, node: str, peer: str) -> Optional[str]:
        """Read on; return the use that a connection has proved to have, `""` when it is to be closed, None to wait."""
        try:
            part = self._connection.recv(_LONGEST_LINE)
        except BlockingIOError:
            return None
        except OSError:
            return ""
        self._heard += part
        line, end, _ = self._heard.partition(b"\n")
        if not end:
            return None if part and len(self._heard) < _LONGEST_LINE else ""
        hello = _parse(line)
        nonce, use, name = hello.get("nonce"), hello.get("use"), hello.get("node")
        if not (is_text(nonce, 64) and is_text(use, 16) and name == peer):
            return ""
        about = [self._nonce, nonce, use, peer, node]
        if not is_proof(hello.get("proof"), prove(token, "pair there", about)):
            return ""
        _try_send(self._connection, {"proof": prove(token, "pair back", about).hex()})
        return str(use)


class Control:
    """JSON lines with a deadline."""

    def __init__(self, connection: socket.socket, until: float, peer: str) -> None:
        self._connection = connection
        self._until = until
        self._peer = peer

    def say(self, document: dict[str, Any]) -> None:
        self._connection.settimeout(max(0.001, self._until - time.monotonic()))
        try:
            self._connection.sendall(json.dumps(document).encode() + b"\n")
        except OSError as error:
            raise CannotTest(f"the connection to {self._peer} broke: {words(error)}", "error") from None

    def hear(self) -> float:
        """Return the rate that the other end has measured, in bytes per second."""
        rate = self.hear_line().get("bytes_per_s")
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < float("inf"):
            raise CannotTest(f"{self._peer} said no rate", "error")
        return float(rate)

    def hear_line(self) -> dict[str, Any]:
        """Return the next line, read byte by byte: data may follow it."""
        line = bytearray()
        while len(line) < _LONGEST_LINE:
            self._connection.settimeout(max(0.001, self._until - time.monotonic()))
            try:
                part = self._connection.recv(1)
            except socket.timeout:
                raise CannotTest(f"{self._peer} did not answer in time", "timeout") from None
            except OSError as error:
                raise CannotTest(f"the connection to {self._peer} broke: {words(error)}", "error") from None
            if not part:
                raise CannotTest(f"{self._peer} ended the connection", "error")
            if part == b"\n":
                break
            line += part
        return _parse(bytes(line))


def _try_send(connection: socket.socket, document: dict[str, Any]) -> None:
    try:
        connection.send(json.dumps(document).encode() + b"\n")
    except OSError:  # it shows when reading
        return


def _parse(line: bytes) -> dict[str, Any]:
    try:
        document = parse_json(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def words(error: OSError) -> str:
    return "timed out" if isinstance(error, socket.timeout) else (error.strerror or str(error)).lower()
