"""A read-only registry on the loopback interface, which serves OCI layouts and can be told to fail.

It answers what skopeo, podman and docker ask for a pull: `/v2/`, manifests by tag and digest, blobs (OCI distribution
specification, "Pull").
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from cordee.testing.oci import MANIFEST


class LoopbackRegistry:
    """Serves inside `with`.

    Args:
        layout: the folder of an `OciLayout`; its images are found by their tags in every repository.
        logins: users and passwords; with any, nobody else gets anything.

    Attributes:
        failures: how many of the next requests for blobs are answered with 503.
        cut: how many of the next blobs end in the middle.
        answering: while it is cleared, blobs are waited for.
        asked: the paths that were asked for.
    """

    def __init__(self, layout: Path, logins: Mapping[str, str] | None = None) -> None:
        self.layout, self.logins = layout, dict(logins or {})
        self.failures = self.cut = 0
        self.answering = threading.Event()
        self.answering.set()
        self.asked: list[str] = []
        registry = self

        class Handler(_Handler):
            served = registry

        self._server = _listen(Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def host(self) -> str:
        """The registry as references name it: `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> LoopbackRegistry:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def manifest(self, reference: str) -> bytes | None:
        """Return the manifest of a tag or digest; the whole index for the tag `index`."""
        index = (self.layout / "index.json").read_bytes()
        if reference == "index":
            return index
        for each in json.loads(index)["manifests"]:
            names = each.get("annotations", {}).values()
            if reference == each["digest"] or reference in names:
                return self.blob(each["digest"])
        return None

    def blob(self, digest: str) -> bytes | None:
        """Return a blob."""
        path = self.layout / "blobs" / digest.replace(":", "/")
        return path.read_bytes() if path.is_file() else None


def _listen(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """Listen on a free port below those of outgoing connections."""
    for port in random.SystemRandom().sample(range(20000, 30000), 200):
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError:
            continue
    raise OSError("no port of the loopback interface is free")


class _Handler(BaseHTTPRequestHandler):
    served: LoopbackRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.served.asked.append(self.path)
        if not self._allowed():
            self._send(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', body=body, challenge=True)
        elif self.path.rstrip("/") == "/v2":
            self._send(200, b"{}", body=body)
        elif "/manifests/" in self.path:
            manifest = self.served.manifest(self.path.rpartition("/")[2])
            kind = json.loads(manifest).get("mediaType", MANIFEST) if manifest else ""
            self._found(manifest, kind, b"MANIFEST_UNKNOWN", body=body)
        elif "/blobs/" in self.path:
            self._blob(body=body)
        else:
            self._send(404, b"{}", body=body)

    def _blob(self, *, body: bool) -> None:
        data = self.served.blob(self.path.rpartition("/")[2])
        self.served.answering.wait()
        if self.served.failures:
            self.served.failures -= 1
            self._send(503, b"{}", body=body)
        elif self.served.cut and data:
            self.served.cut -= 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self._found(data, "application/octet-stream", b"BLOB_UNKNOWN", body=body)

    def _allowed(self) -> bool:
        if not self.served.logins:
            return True
        kind, _, token = (self.headers.get("Authorization") or "").partition(" ")
        user, _, password = base64.b64decode(token).decode().partition(":") if kind == "Basic" else ("", "", "")
        return bool(user) and self.served.logins.get(user) == password

    def _found(self, data: bytes | None, kind: str, unknown: bytes, *, body: bool) -> None:
        if data is None:
            self._send(404, b'{"errors":[{"code":"' + unknown + b'"}]}', body=body)
        else:
            self._send(200, data, body=body, kind=kind)

    def _send(
        self, status: int, data: bytes, *, body: bool, kind: str = "application/json", challenge: bool = False
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if challenge:
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.end_headers()
        if body:
            self.wfile.write(data)
