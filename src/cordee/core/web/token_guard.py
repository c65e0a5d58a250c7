"""`python token_guard.py TOKEN_FILE PROGRAM ARGUMENTS...`: runs a Python program whose web server then asks everybody for a token.

For programs that ask for nothing by themselves (TensorBoard, the Optuna dashboard, `transformers serve`). The web servers that
Python programs use are wrapped as they are made: those of WSGI (wsgiref, werkzeug) and of ASGI (uvicorn). Whoever sends the token
is let in: as `Authorization: Bearer TOKEN`, as the password of Basic, or by `?token=TOKEN`, which sets a cookie. A program whose
server is none of these stays open, which the service's `[closed]` question finds before it counts as ready.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import runpy
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any
from urllib.parse import parse_qsl, urlencode

COOKIE = "cordee_token"
_REFUSAL = b"a token is needed: send it as Authorization: Bearer TOKEN, or open this address with ?token=TOKEN\n"


class TokenGate:
    """Knows who may come in."""

    def __init__(self, token: str) -> None:
        self._token = token

    def lets_in(self, authorization: str, cookies: str) -> bool:
        """Return whether one of them holds the token."""
        kind, _, value = authorization.partition(" ")
        given = [value.strip()] if kind.lower() == "bearer" else []
        if kind.lower() == "basic":
            try:
                given.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
            except (binascii.Error, UnicodeDecodeError):
                pass
        try:
            cookie = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None:
            given.append(cookie.value)
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given)

    def redirect(self, path: str, query: str) -> list[tuple[str, str]] | None:
        """Return the headers that send a browser on without the token in its address; None: it gave none, or a wrong one."""
        pairs = parse_qsl(query, keep_blank_values=True)
        given = dict(pairs).get("token")
        if given is None or not hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        place = "/" + path.lstrip("/")
        cookie = f"{COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        return [("Location", place + (f"?{rest}" if rest else "")), ("Set-Cookie", cookie), ("Content-Length", "0")]

    def wsgi(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """Return a WSGI application behind the gate."""

        def gated(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            path, query = environ.get("PATH_INFO", "/"), environ.get("QUERY_STRING", "")
            onward = self.redirect(path, query)
            if onward is not None:
                start_response("303 See Other", onward)
                return [b""]
            if self.lets_in(environ.get("HTTP_AUTHORIZATION", ""), environ.get("HTTP_COOKIE", "")):
                return app(environ, start_response)
            start_response("401 Unauthorized", _refusal_headers())
            return [_REFUSAL]

        return gated

    def asgi(self, app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """Return an ASGI application behind the gate."""

        async def gated(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] not in ("http", "websocket"):
                await app(scope, receive, send)
                return
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            web = scope["type"] == "http"
            onward = self.redirect(scope["path"], scope.get("query_string", b"").decode("latin-1")) if web else None
            if onward is not None:
                await _answer(send, 303, onward, b"")
            elif self.lets_in(headers.get("authorization", ""), headers.get("cookie", "")):
                await app(scope, receive, send)
            elif web:
                await _answer(send, 401, _refusal_headers(), _REFUSAL)
            else:
                await send({"type": "websocket.close", "code": 4401})

        return gated


def _refusal_headers() -> list[tuple[str, str]]:
    basic = ("WWW-Authenticate", 'Basic realm="cordee: any name, the token as password"')
    return [("Content-Type", "text/plain"), ("Content-Length", str(len(_REFUSAL))), basic]


async def _answer(send: Any, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    coded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": coded})
    await send({"type": "http.response.body", "body": body})


def _wsgiref(module: Any, gate: TokenGate) -> None:
    own = module.WSGIServer.set_app
    module.WSGIServer.set_app = lambda self, app: own(self, gate.wsgi(app))


def _werkzeug(module: Any, gate: TokenGate) -> None:
    own = module.BaseWSGIServer.__init__

    def made(self: Any, host: str, port: int, app: Any, *rest: Any, **more: Any) -> None:
        own(self, host, port, gate.wsgi(app), *rest, **more)

    module.BaseWSGIServer.__init__ = made


def _uvicorn(module: Any, gate: TokenGate) -> None:
    own = module.Config.load

    def load(self: Any) -> None:
        own(self)
        self.loaded_app = gate.asgi(self.loaded_app)

    module.Config.load = load


_SERVERS: dict[str, Callable[[Any, TokenGate], None]] = {
    "wsgiref.simple_server": _wsgiref,
    "werkzeug.serving": _werkzeug,
    "uvicorn.config": _uvicorn,
}


class _Wrapping(MetaPathFinder):
    """Wraps a web server's module when it is imported: nothing is imported for that alone."""

    def __init__(self, gate: TokenGate) -> None:
        self._gate = gate
        self._looking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        wrap = _SERVERS.get(fullname)
        if wrap is None or self._looking:
            return None
        import importlib.util

        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _WrappingLoader(spec.loader, wrap, self._gate)
        return spec


class _WrappingLoader(Loader):
    def __init__(self, own: Any, wrap: Callable[[Any, TokenGate], None], gate: TokenGate) -> None:
        self._own, self._wrap, self._gate = own, wrap, gate

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._own.exec_module(module)
        self._wrap(module, self._gate)


def main() -> None:
    """Run the program behind the gate."""
    token_file, program, *arguments = sys.argv[1:]
    with open(token_file) as file:
        gate = TokenGate(file.read().strip())
    sys.meta_path.insert(0, _Wrapping(gate))
    sys.argv = [program, *arguments]
    if program == "-m":
        sys.argv = arguments
        sys.path[0] = ""
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    path = shutil.which(program)
    if path is None:
        sys.exit(f"cordee: there is no program {program}")
    sys.path.pop(0)
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
