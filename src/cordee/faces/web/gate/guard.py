"""The gate in front of every route: called by which name, from which page, by whom; nothing behind it needs to ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from cordee.core.errors import CordeeError
from cordee.core.web.peers import Peers
from cordee.faces.web.answers.error_page import error_page
from cordee.faces.web.answers.errors import Forbidden, NotAllowed, status_of
from cordee.faces.web.answers.tables import encode_json
from cordee.faces.web.gate.access import COOKIE_S, Access, cookie_name, cookies
from cordee.faces.web.gate.headers import SECURITY_HEADERS
from cordee.faces.web.gate.sign_in import SCRIPT, SIGN_IN, sign_in_page, sign_in_script

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PATIENCE_S = 60.0
_LARGEST_FORM_BYTES = 4096
_log = logging.getLogger(__name__)


class Guard:
    """Passes on what may pass, with the headers of `cordee.faces.web.gate.headers` on every answer.

    Args:
        app: what is guarded.
        hosts: names by which the server may be called, as in the header Host without a port.
        access: who may look.
        peers: the server's open connections.
        close: ends open streams and children.
        patience_s: how long a client may take nothing of its answer.
    """

    def __init__(
        self,
        app: App,
        hosts: frozenset[str],
        access: Access,
        peers: Peers,
        close: Callable[[], None],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.app, self.peers, self.close = app, peers, close
        self._patience_s = patience_s
        self._hosts, self._access = hosts, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            try:
                async with asyncio.timeout(self._patience_s):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect("it takes nothing any more") from None

        headers = _Headers(scope)
        try:
            self._check_name(headers)
            _check_page(scope, headers)
            if await self._answered(scope, headers, receive, sealed):
                return
        except CordeeError as error:
            await _refuse(scope, headers, sealed, error)
            return
        except ClientDisconnect:
            return
        try:
            await self.app(scope, receive, sealed)
        except Exception:  # the application has answered and logged it
            return

    def _check_name(self, headers: _Headers) -> None:
        """Refuse what was sent to another name: a page elsewhere can have its own name lead to this machine."""
        given = headers.all(b"host")
        if len(given) != 1 or _without_port(given[0]).lower() not in self._hosts:
            raise Forbidden(
                "this server is not called by this name",
                given=", ".join(given)[:200],
                allowed=sorted(self._hosts),
                next="start it with --host NAME to have it answer to another name",
            )

    async def _answered(self, scope: Scope, headers: _Headers, receive: Receive, send: Send) -> bool:
        """Check who asks; True: they were answered already, with a cookie for their token or with what asks for one.

        Raises:
            NotAllowed, Forbidden: they may not look.
        """
        client = scope["client"][0] if scope.get("client") else ""
        authorization = headers.all(b"authorization")
        if authorization:
            self._access.by_header(authorization[0])
            return False
        if scope["path"] == SCRIPT:
            kind = (b"content-type", b"text/javascript; charset=utf-8")
            await _send(send, 200, sign_in_script(), [kind, (b"cache-control", b"no-cache")])
            return True
        if scope["path"] == SIGN_IN and scope["method"] == "POST":
            await _welcome(scope, headers, send, self._access.by_form(await _body(receive), client))
            return True
        if not self._access.users or await self.peers.owner(scope) not in self._access.users:
            name = cookie_name(scope["server"][1] or 0) if scope.get("server") else ""
            value = cookies("; ".join(headers.all(b"cookie"))).get(name, "")
            if not self._access.by_cookie(value, client):
                raise self._access.refusal()
        return False


class _Headers:
    """A request's headers."""

    def __init__(self, scope: Scope) -> None:
        self._pairs = scope["headers"]

    def all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self._pairs if key == name]

    def first(self, name: bytes) -> str:
        return next(iter(self.all(name)), "")


def _check_page(scope: Scope, headers: _Headers) -> None:
    """Refuse what a page of another site asks for; a link that leads here may open the pages themselves."""
    origin, host = headers.first(b"origin"), headers.first(b"host")
    if origin and urlsplit(origin).netloc.lower() != host.lower():
        raise Forbidden("this was asked by a page of another site", given=origin[:200], allowed=f"http://{host}")
    site = headers.first(b"sec-fetch-site")
    opened = scope["path"] == "/" and headers.first(b"sec-fetch-dest") == "document"
    if site not in ("", "same-origin", "none") and not opened:
        raise Forbidden(
            "this was asked by a page of another site", given=f"Sec-Fetch-Site: {site[:50]}", allowed="same-origin"
        )


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


async def _body(receive: Receive) -> bytes:
    """Return the body of a request that signs in.

    Raises:
        Forbidden: it is longer than that of any token.
        ClientDisconnect: it did not come whole.
    """
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > _LARGEST_FORM_BYTES:
            raise Forbidden("this is no token", allowed=f"a form of at most {_LARGEST_FORM_BYTES} bytes")
    return body


async def _welcome(scope: Scope, headers: _Headers, send: Send, value: str) -> None:
    """Answer with the cookie, and lead to the pages."""
    secure = "; Secure" if headers.first(b"x-forwarded-proto") == "https" else ""
    name = cookie_name(scope["server"][1] or 0)
    cookie = f"{name}={value}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Strict{secure}"
    answer = [(b"set-cookie", cookie.encode("latin-1")), (b"cache-control", b"no-store"), (b"location", b"/")]
    await _send(send, 303, b"", answer)


async def _refuse(scope: Scope, headers: _Headers, send: Send, error: CordeeError) -> None:
    answer = [(b"cache-control", b"no-store")]
    if isinstance(error, NotAllowed):
        answer.append((b"www-authenticate", b"Bearer"))
    _log.info("refused %s: %s", scope["path"], error.text)
    if "text/html" in headers.first(b"accept"):
        page = sign_in_page if isinstance(error, NotAllowed) else error_page
        body, kind = page(error), b"text/html; charset=utf-8"
    else:
        body, kind = encode_json(error.document()), b"application/json"
    await _send(send, status_of(error), body, [*answer, (b"content-type", kind)])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
