"""A small HTTP collector: vettings come in by POST and become the files of a history, which others may read.

It speaks plain HTTP and listens on this machine unless told otherwise; a proxy in front of it brings TLS.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.web.http_server import listen, make_server, run
from cordee.core.web.tokens import Token, find_token
from cordee.machine.foreign_files import read_regular
from cordee.systems.vetting.fleet.history import LARGEST_BYTES, history_files, node_fault, parse_vetting
from cordee.systems.vetting.node.judge.history import day, file_name
from cordee.systems.vetting.node.judge.record import write_file

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 1000
_FILE = re.compile(r"(\d{4}-\d{2}-\d{2})/([A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,200}\.jsonl)\Z")
Handler = Callable[["Request"], Awaitable["Response"]]


def make_app(
    folder: str | Path, tokens: Sequence[Token], hosts: Sequence[str], most_bytes: int = LARGEST_BYTES
) -> Starlette:
    """Return the collector as an ASGI application.

    `POST /v1/vettings` (scope write) takes the JSON lines of one vetting; the same again is answered as the first time.
    `GET /v1/vettings?after=DAY/NAME` (scope read) lists files in their order, at most 1,000 at once;
    `GET /v1/vettings/DAY/NAME` returns one. `GET /health` needs no token.

    Args:
        folder: the history's.
        tokens: who may do what.
        hosts: names by which it may be called, as in the header Host; `*` is any.
        most_bytes: largest body.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    collector = _Collector(Path(folder), list(tokens), most_bytes)

    async def health(_request: Request) -> Response:
        return PlainTextResponse("well\n")

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/vettings", collector.allowed("write", collector.take), methods=["POST"]),
            Route("/v1/vettings", collector.allowed("read", collector.list_files), methods=["GET"]),
            Route("/v1/vettings/{name:path}", collector.allowed("read", collector.give), methods=["GET"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
    )


def serve(app: Starlette, address: str, port: int, said: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `said` gets one line when it listens.

    Raises:
        UsageError: the port cannot be had.
    """
    listener = listen(address, port)
    said(f"listening on {address} port {listener.getsockname()[1]}")
    run(make_server(app), listener)


class _Collector:
    def __init__(self, folder: Path, tokens: list[Token], most_bytes: int) -> None:
        self._folder, self._tokens, self._most_bytes = folder, tokens, most_bytes
        self._writing = asyncio.Lock()

    def allowed(self, scope: str, handler: Handler) -> Handler:
        """Return the handler for those whose token has this scope."""

        async def guarded(request: Request) -> Response:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            token = find_token(self._tokens, given.strip()) if kind.lower() == "bearer" else None
            if token is None:
                return _answer(401, "a token is needed", {"WWW-Authenticate": "Bearer"})
            if scope not in token.scopes:
                return _answer(403, f"this token does not allow to {scope}")
            return await handler(request)

        return guarded

    async def take(self, request: Request) -> Response:
        """Store one vetting."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > self._most_bytes:
                return _answer(413, f"more than {self._most_bytes} bytes")
        fault, header = await asyncio.to_thread(_examine, bytes(content))
        if fault:
            return _answer(422, fault)
        async with self._writing:
            try:
                created = await asyncio.to_thread(self._store, header, bytes(content))
            except OSError as error:
                return _answer(507, f"cannot be written: {error.strerror}")
        return _answer(201 if created else 200, "stored" if created else "was stored before")

    def _store(self, header: dict[str, Any], content: bytes) -> bool:
        if (self._folder / day(header) / file_name(header)).exists():
            return False
        write_file(self._folder, header, content)
        return True

    async def list_files(self, request: Request) -> Response:
        """List the names of files after one."""
        after = request.query_params.get("after", "")
        names = await asyncio.to_thread(self._names, after)
        return _json(200, {"files": names[:PAGE], "more": len(names) > PAGE})

    def _names(self, after: str) -> list[str]:
        found = (f"{path.parent.name}/{path.name}" for path in history_files(self._folder))
        return [name for name in found if name > after][: PAGE + 1]

    async def give(self, request: Request) -> Response:
        """Return one file."""
        from starlette.responses import Response

        match = _FILE.match(request.path_params["name"])
        path = self._folder / match[1] / match[2] if match else None
        if path is None:
            return _answer(404, "there is no such vetting")
        try:
            content = await asyncio.to_thread(read_regular, path, self._folder)
        except OSError:
            return _answer(404, "there is no such vetting")
        return Response(content, media_type="application/x-ndjson")


def _examine(content: bytes) -> tuple[str | None, dict[str, Any]]:
    """Return what is wrong with a body, and its header."""
    try:
        vetting = parse_vetting(content)
    except ValueError as error:
        return str(error), {}
    for line in content.split(b"\n")[1:]:
        if line.strip():
            try:
                node = json.loads(line)
            except (ValueError, RecursionError):
                return "a line is no JSON", {}
            fault = node_fault(node) if isinstance(node, dict) else "a line is no JSON object"
            if fault:
                return fault, {}
    return ("lines of nodes are missing or doubled" if vetting.torn else None), vetting.header


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return _json(status, {"text": text}, headers)


def _json(status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(document, status, headers)
