"""The server as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import cordee
from cordee.core import registry
from cordee.core.errors import CordeeError, UsageError
from cordee.core.parts import load
from cordee.core.web.peers import Peers
from cordee.core.web.tokens import Token
from cordee.faces.web.answers.cache import Cache
from cordee.faces.web.answers.error_page import error_page
from cordee.faces.web.answers.errors import NotFound, status_of
from cordee.faces.web.answers.openapi import describe
from cordee.faces.web.answers.tables import encode_json
from cordee.faces.web.cluster_status import RunsSite
from cordee.faces.web.for_systems import ForSystems
from cordee.faces.web.gate.access import Access
from cordee.faces.web.gate.guard import Guard
from cordee.faces.web.live import Hub
from cordee.faces.web.routes import live, logged, parts, runs, samples, site
from cordee.faces.web.runs.library import RunLibrary
from cordee.faces.web.server import RunsServer

STATIC = Path(__file__).parent / "static"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_log = logging.getLogger(__name__)


def make_app(
    folders: Sequence[str | Path],
    *,
    singles: Iterable[str | Path] = (),
    hosts: Iterable[str] = (),
    tokens: Sequence[Token] = (),
    users: Iterable[int] = (),
    completes: bool = False,
) -> Guard:
    """Return the pages and the HTTP interface over run folders; its `close` ends streams and children.

    Args:
        folders: each holds runs.
        singles: runs and recordings that are shown wherever they lie.
        hosts: names beside this machine's own by which the server may be called.
        tokens: those with the scope read may look.
        users: user ids whose connections on this machine need no token.
        completes: whether this user's runs that are shown get the report that their end left to be made; else nothing is written.
    """
    shelf = RunLibrary([Path(folder) for folder in folders], map(Path, singles))
    server = RunsServer(shelf, Hub(shelf), RunsSite(shelf.folders), Cache(), completes)

    app = FastAPI(
        title="Cordée", version=cordee.__version__, docs_url=None, redoc_url=None,
        openapi_url="/openapi.json",
    )  # fmt: skip
    app.state.cordee, app.state.serving = server, ForSystems(server)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    for module in (runs, samples, logged, parts, live, site):
        app.include_router(module.router)

    systems = registry.all_systems()
    for system in systems:
        if system.routes:
            app.include_router(load(system.routes))

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    for system in systems:
        if system.pages:
            files = _Static(packages=[(system.package or f"cordee.systems.{system.name}", "static")])
            app.mount(f"/static/systems/{system.name}", files, name=f"static of {system.name}")
    app.mount("/static", _Static(directory=STATIC), name="static")
    app.add_exception_handler(CordeeError, _told)
    app.add_exception_handler(RequestValidationError, _wrong_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unforeseen)
    names = frozenset(name.lower() for name in (*LOCAL_NAMES, *hosts))
    return Guard(app, names, Access(tokens, frozenset(users)), Peers(), server.close)


class _Static(StaticFiles):
    """The pages' files; browsers ask each time whether they are new, so that an upgrade is seen at once."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        response = super().file_response(*arguments, **named)
        response.headers["Cache-Control"] = "no-cache"
        return response


def _error(request: Request, error: CordeeError, status: int, headers: Any = None) -> Response:
    """Return the answer: a page where a browser was opened at this address, JSON for all who ask for data."""
    told = {**(headers or {}), "Vary": "Accept"}
    if "text/html" in request.headers.get("accept", ""):
        return Response(error_page(error), status, told, "text/html; charset=utf-8")
    return Response(encode_json(error.document()), status, told, "application/json")


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, CordeeError)
    return _error(request, error, status_of(error))


async def _wrong_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    wrong = UsageError(f"{name}: {first['msg']}", given=str(first.get("input"))[:200])
    return _error(request, wrong, 400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    unknown = error.status_code == 404
    text = "there is nothing under this address" if unknown else str(error.detail)
    what = "the pages begin at /, what they show as data at /api/runs" if unknown else None
    return _error(request, NotFound(text, given=request.url.path[:200], next=what), error.status_code, error.headers)


async def _unforeseen(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(request, CordeeError("the server failed at this; its log says more"), 500)
