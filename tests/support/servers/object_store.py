"""An S3-compatible server on this machine, and a way to it that fails as one likes."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tempfile import TemporaryFile
from types import TracebackType
from urllib.request import Request, urlopen

from cordee.testing.ports import free_ports

_START_S = 90.0
# Ends when its input does: with the process that started it, however that ends.
_SERVER = """
import os, sys, threading
def ended():
    sys.stdin.read()
    print("its input has ended", file=sys.stderr, flush=True)
    os._exit(0)
threading.Thread(target=ended, daemon=True).start()
from moto.server import main
main()
"""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAOFATESTONTHISPC0",
    "AWS_SECRET_ACCESS_KEY": "the-secret-of-a-test",
    "AWS_REGION": "us-east-1",
}


class DisposableS3:
    """A server with one empty bucket, `bucket`, inside `with`; a child process that ends with it.

    Attributes:
        url: its endpoint.
        variables: what a client's environment needs.
    """

    bucket = "bucket"

    def __enter__(self) -> DisposableS3:
        self._held = ExitStack()
        self.port = self._held.enter_context(free_ports(1))
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}
        argv = [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(self.port)]
        self._words = self._held.enter_context(TemporaryFile())
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._words)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with urlopen(Request(f"{self.url}/{self.bucket}", method="PUT"), timeout=10):
                    return self
            except OSError:
                if time.monotonic() > deadline or self._child.poll() is not None:
                    self._end()
                    raise TimeoutError("the S3 server did not start")
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def must_run(self) -> None:
        """Raise RuntimeError, with its last words, where the server has ended by itself."""
        if self._child.poll() is not None:
            self._words.seek(0)
            words = self._words.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"the S3 server has ended with {self._child.returncode}: {words}")

    def _end(self) -> None:
        self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._held.close()


class FailingWay:
    """A proxy in front of a server, inside `with`; what it does is changed while it runs.

    Attributes:
        url: the endpoint to use in place of the server's.
        failures: how many of the next requests are answered with 503.
        cut: how many of the next answers end in the middle of their body.
        flipped: how many of the next answers have a wrong bit in the middle of their body.
        headers: what every answer has besides.
        silent: how many of the next requests are never answered.
        broken: how many of the next connections are closed without an answer.
        matching: only requests for which it returns true (method, path) fail so; all at first.
        asked: (method, path) of every request.
    """

    def __init__(self, url: str) -> None:
        self.failures = self.cut = self.silent = self.broken = self.flipped = 0
        self.headers: dict[str, str] = {}
        self.matching: Callable[[str, str], bool] = lambda method, path: True
        self.asked: list[tuple[str, str]] = []
        self.server = url.removeprefix("http://")
        self.lock, self.over = threading.Lock(), threading.Event()
        way = self

        class Handler(_Handler):
            served = way

        self._held = ExitStack()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._held.enter_context(free_ports(1))), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> FailingWay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._held.close()

    def fault(self, method: str, path: str) -> str:
        """Note a request and return what goes wrong with it; empty: nothing."""
        with self.lock:
            self.asked.append((method, path))
            if not self.matching(method, path):
                return ""
            for fault in ("failures", "silent", "broken", "cut", "flipped"):
                if getattr(self, fault) > 0:
                    setattr(self, fault, getattr(self, fault) - 1)
                    return fault
        return ""


class _Handler(BaseHTTPRequestHandler):
    served: FailingWay
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.served.fault(self.command, self.path)
        if fault == "failures":
            self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
        elif fault == "silent":
            self.served.over.wait()
            self.close_connection = True
        elif fault == "broken":
            self.close_connection = True
        else:
            connection = http.client.HTTPConnection(self.served.server, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault == "flipped":
                half = len(content) // 2
                content = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
            headers = [*answer.getheaders(), *self.served.headers.items()]
            self._answer(answer.status, headers, content, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
        self.send_response(status)
        sized = {name.lower() for name, _ in headers} & {"content-length"}
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        if not sized:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    def log_message(self, *words: object) -> None:
        """Say nothing."""
