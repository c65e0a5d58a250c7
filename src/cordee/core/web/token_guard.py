"""`python token_guard.py TOKEN_FILE PROGRAM ARGUMENTS...`: runs a Python program whose web server then asks everybody for a token.

For programs that ask for nothing by themselves (TensorBoard, the Optuna dashboard, `transformers serve`). The program is named as
for a shell, and runs with its own Python: `python` with its options, or a script whose first line names one. The web servers that
Python programs use are wrapped as they are made: those of the standard library (http.server, and wsgiref and werkzeug, which build
on it) and of ASGI (uvicorn). Whoever sends the token is let in: as `Authorization: Bearer TOKEN`, as the password of Basic, or by
`?token=TOKEN`, which sets a cookie. A program whose server is none of these stays open, which the service's `[closed]` question
finds before it counts as ready.

`python token_guard.py --python-of PROGRAM WORDS...` runs these words with the Python of a program, and guards nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import runpy
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from http.cookies import CookieError, SimpleCookie
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any
from urllib.parse import parse_qsl, urlencode

COOKIE = "cordee_token"
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?\Z")
_WITH_VALUE = ("-W", "-X")
# What Python runs, as the guard hands it to that Python.
_MODULE = "-m"
_TEXT = "-c"
_FILE = "--"
PYTHON_OF = "--python-of"
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

    def answers(self, request: Any) -> bool:
        """Return whether a request of `http.server` may go on; one that may not is answered."""
        path, _, query = request.path.partition("?")
        onward = self.redirect(path, query)
        headers = request.headers
        if onward is None and self.lets_in(headers.get("Authorization", ""), headers.get("Cookie", "")):
            return True
        code, lines, body = (401, _refusal_headers(), _REFUSAL) if onward is None else (303, onward, b"")
        request.close_connection = True  # what else was sent with it is not read
        request.send_response_only(code)
        for name, value in [*lines, ("Connection", "close")]:
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
        return False

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


def _socketserver(module: Any, gate: TokenGate) -> None:
    own = module.StreamRequestHandler.setup

    def setup(self: Any) -> None:
        own(self)
        read = getattr(self, "parse_request", None)  # it speaks HTTP
        if read is not None:
            self.parse_request = lambda: read() and gate.answers(self)

    module.StreamRequestHandler.setup = setup


def _uvicorn(module: Any, gate: TokenGate) -> None:
    own = module.Config.load

    def load(self: Any) -> None:
        own(self)
        self.loaded_app = gate.asgi(self.loaded_app)

    module.Config.load = load


_SERVERS: dict[str, Callable[[Any, TokenGate], None]] = {
    "socketserver": _socketserver,
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


def python_words(argv: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the words that start the Python of a program, and what that is to run: `-m MODULE`, `-c TEXT` or `-- FILE`, with arguments.

    Returns:
        None: it is no program of Python.

    Raises:
        FileNotFoundError: there is no such program.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise FileNotFoundError(f"there is no program {argv[0]} that can be executed")
    if not _PYTHON.match(os.path.basename(argv[0])):
        python = _python_of(program)
        return (python, [_FILE, program, *argv[1:]]) if python else None
    options, rest = [program], list(argv[1:])
    while rest and rest[0].startswith("-") and rest[0] not in (_MODULE, _TEXT):
        options += [rest.pop(0) for _ in range(2 if rest[0] in _WITH_VALUE else 1)]
    return (options, rest if rest[0].startswith("-") else [_FILE, *rest]) if rest else None


def _python_of(script: str) -> list[str]:
    """Return what the first line of a script has run it, where that is Python; else nothing."""
    with open(script, "rb") as file:
        first, second = (file.readline(4096).decode(errors="replace") for _ in range(2))
    try:
        # What pip writes where the path of Python is too long for a first line.
        words = shlex.split(second[len("'''exec'") :] if second.startswith("'''exec'") else first.partition("#!")[2])
    except ValueError:
        return []
    if words and os.path.basename(words[0]) == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    words = words[: words.index("$0")] if "$0" in words else words
    python = shutil.which(words[0]) if words and _PYTHON.match(os.path.basename(words[0])) else None
    return [python, *words[1:]] if python else []


def main() -> None:
    """Run the program behind the gate, in its own Python."""
    if sys.argv[1] == PYTHON_OF:
        program, *arguments = sys.argv[2:]
        python = (shutil.which(program) and _python_of(str(shutil.which(program)))) or ["python"]
        os.execvp(python[0], [*python, *arguments])
    token_file, *words = sys.argv[1:]
    if words[0] not in (_MODULE, _TEXT, _FILE):
        try:
            found = python_words(words)
        except FileNotFoundError as error:
            sys.exit(f"cordee: {error}")
        if found is None:
            sys.exit(f"cordee: {words[0]} is no program of Python, whose web server the guard could hold")
        python, rest = found
        os.execv(python[0], [*python, os.path.abspath(__file__), token_file, *rest])
    if os.getpid() == 1:  # the first process of a container hears only the signals that it has asked for
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with open(token_file) as file:
        gate = TokenGate(file.read().strip())
    sys.meta_path.insert(0, _Wrapping(gate))
    kind, what, *arguments = words
    sys.argv, sys.path[0] = [what, *arguments], ""
    if kind == _MODULE:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == _TEXT:
        sys.argv[0] = kind
        exec(what, {"__name__": "__main__"})
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(what))
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    main()
