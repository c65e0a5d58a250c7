"""Receives OTLP over HTTP on the node itself, under a path that only the run's ranks are told."""

from __future__ import annotations

import hmac
import http.server
import socket
import socketserver
import threading
import zlib
from typing import Callable

from cordee.telemetry.node.metrics.otlp import Batch, read_json, read_protobuf

MOST_BYTES = 4 << 20
MOST_INFLATED_BYTES = 16 << 20
MOST_JSON_BYTES = 8 << 20
MOST_CONNECTIONS = 64
TIMEOUT_S = 10.0
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"


class RequestRefused(Exception):
    """A request that is not taken: its status and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Receiver(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Listens on a port of the loopback address that the agent has reserved.

    Args:
        port: bound, with SO_REUSEPORT, by this user's agent.
        secret: the first part of the path.
        take: takes batches from any thread.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, port: int, secret: str, take: Callable[[list[Batch]], None]) -> None:
        self.path, self.take = f"/{secret}/v1/metrics", take
        self.refused = 0
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: object, client_address: object) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        self.refused += 1


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "cordee", ""
    timeout = TIMEOUT_S
    server: Receiver

    def do_POST(self) -> None:
        try:
            answer = self._taken()
            self._answer(200, answer, b"{}" if answer == _JSON else b"")
        except RequestRefused as error:
            self.server.refused += 1
            self.close_connection = True
            self._answer(error.status, "text/plain", f"{error}\n".encode())

    def log_message(self, *words: object) -> None:
        """Say nothing: the caller has the answer."""

    def _taken(self) -> str:
        if not hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.path.encode()):
            raise RequestRefused(404, "there is nothing here")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in (_PROTOBUF, _JSON):
            raise RequestRefused(415, f"send {_PROTOBUF} or {_JSON}")
        data = self._body(MOST_JSON_BYTES if kind == _JSON else MOST_INFLATED_BYTES)
        try:
            batches = read_json(data) if kind == _JSON else read_protobuf(data)
        except ValueError as error:
            raise RequestRefused(400, f"this is no request of OTLP metrics: {error}") from None
        self.server.take(batches)
        return kind

    def _body(self, most_bytes: int) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise RequestRefused(411, "send Content-Length")
        if int(length) > MOST_BYTES:
            raise RequestRefused(413, f"at most {MOST_BYTES >> 20} MiB at once")
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise RequestRefused(400, "the body ends too early")
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding in ("identity", ""):
            return data
        if encoding not in ("gzip", "deflate"):
            raise RequestRefused(415, "compress with gzip, or not at all")
        return _inflated(data, most_bytes)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _inflated(data: bytes, most_bytes: int) -> bytes:
    reader = zlib.decompressobj(wbits=47)  # gzip or zlib, as its first bytes say
    try:
        found = reader.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise RequestRefused(400, f"this is not compressed as it says: {error}") from None
    if len(found) > most_bytes:
        raise RequestRefused(413, f"at most {most_bytes >> 20} MiB when inflated")
    if not reader.eof:
        raise RequestRefused(400, "the compressed body ends too early")
    return found
