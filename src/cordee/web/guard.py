"""The gate in front of every route: by which name, from which page, by whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from cordee.errors import CordeeError
from cordee.web.errors import Forbidden, status_of
from cordee.web.headers import SECURITY_HEADERS
from cordee.web.tables import encode_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Passes on what may pass, with the headers of `cordee.web.headers` on every answer.

    Args:
        app: what is guarded.
        hosts: names by which the server may be called, as in the header Host.
    """

    def __init__(self, app: App, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        try:
            self._check_name(_headers(scope, b"host"))
        except CordeeError as error:
            await _refuse(sealed, error)
            return
        await self._app(scope, receive, sealed)

    def _check_name(self, given: list[str]) -> None:
        name = given[0].rpartition(":")[0] if given and given[0].rpartition(":")[2].isdigit() else "".join(given)
        if len(given) != 1 or name.lower() not in self._hosts:
            raise Forbidden(
                "this server is not called by this name",
                given=", ".join(given)[:200],
                allowed=sorted(self._hosts),
                next="start it with --host NAME to have it answer to another name",
            )


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _refuse(send: Send, error: CordeeError) -> None:
    body = encode_json(error.document())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})
