"""A web server that behaves in the ways that lists of URLs meet."""

from __future__ import annotations

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 400


class WebServer:
    """Serves on loopback; `asked` are (path, Range) of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Range")))
                path = self.path.partition("?")[0].strip("/")
                getattr(self, path.split("/")[0].replace(".", "_"), self.missing)()

            def give(self, body: bytes, kind: str, status: int = 200, **more: str) -> None:
                self.send_response(status)
                for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
                    self.send_header(key.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def missing(self) -> None:
                self.give(b"", "text/plain", 404)

            def cat_jpg(self) -> None:
                given = self.headers.get("Range")
                if given and self.headers.get("If-Range") == '"cat"':
                    begin = int(given[6:-1])
                    more = {"Content_Range": f"bytes {begin}-{len(JPEG) - 1}/{len(JPEG)}"}
                    self.give(JPEG[begin:], "image/jpeg", 206, ETag='"cat"', **more)
                else:
                    self.give(JPEG, "image/jpeg", ETag='"cat"')

            def torn(self) -> None:
                if self.headers.get("Range"):
                    self.cat_jpg()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "image/jpeg")
                self.send_header("Content-Length", str(len(JPEG)))
                self.send_header("ETag", '"cat"')
                self.end_headers()
                self.wfile.write(JPEG[:50_000])

            def dead(self) -> None:
                self.give(b"<html><body>this domain is for sale</body></html>", "image/jpeg")

            def program(self) -> None:
                self.give(b"\x7fELF" + b"\0" * 100, "application/octet-stream")

            def redirect(self) -> None:
                self.give(b"", "text/plain", 302, Location=self.path.partition("?")[2])

            def busy(self) -> None:
                self.give(b"", "text/plain", 429, Retry_After="0")

            def encoded(self) -> None:
                self.give(b"x", "text/plain", Content_Encoding="br")

            def forbidden(self) -> None:
                self.give(b"", "text/plain", 403)

            def trickle(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                self.drip()

            def header(self) -> None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                self.drip()

            def drip(self) -> None:
                try:
                    for _ in range(200):
                        self.wfile.write(b"a")
                        time.sleep(0.05)
                except OSError:
                    pass

            def log_message(self, *about: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


SHA256 = hashlib.sha256(JPEG).hexdigest()
