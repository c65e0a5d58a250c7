"""A node that takes part in a vetting, as the one who conducts it sees it."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Callable, Optional

from cordee.checks import unknown_result
from cordee.clock import monotonic, unix_s

_SLACK_S = 5.0
_PORT_S = 10.0
_CLOCK_S = 1.0
_CLOCK_EXCHANGES = 3

Send = Callable[[dict[str, Any]], bool]


class Member:
    """One node, over messages that agents and the tasks of `cordee vet` both understand.

    It is asked with `checks {id, request, deadline_s}` and answers with `checks_output {id}` (the body is a part of JSON
    lines, one result each) and `checks_done {id, code, signal, text}`; with `port {host, count}`, answered by
    `port {ports, text}`; with `clock`, answered by `clock {unix_s}`.

    Args:
        name: the node's name.
        send: hands a message to the node; False when it is gone.
        address: where other nodes reach it.
    """

    def __init__(self, name: str, send: Send, address: str) -> None:
        self.name = name
        self.address = address
        self._send = send
        self._count = 0
        self._key = secrets.token_hex(4)
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._output: dict[str, bytes] = {}
        self._ports: Optional[asyncio.Future[dict[str, Any]]] = None
        self._clock: Optional[asyncio.Future[dict[str, Any]]] = None

    def message(self, message: dict[str, Any], body: bytes) -> None:
        """Take what the node says; other messages than those above are left alone."""
        kind, identifier = message.get("t"), message.get("id", "")
        if kind == "checks_output" and identifier in self._output:
            self._output[identifier] += body
        elif kind == "checks_done" and identifier in self._waiting:
            _settle(self._waiting[identifier], message)
        elif kind == "port" and self._ports is not None:
            _settle(self._ports, message)
        elif kind == "clock" and self._clock is not None:
            _settle(self._clock, message)

    def lost(self, reason: str) -> None:
        """The node is gone: whatever is awaited will not come."""
        for future in (*self._waiting.values(), self._ports, self._clock):
            if future is not None:
                _settle(future, {"code": None, "text": reason, "ports": [], "lost": True})

    async def check(
        self, checks: list[dict[str, Any]], deadline_s: float, *, patience_s: float = 2 * _SLACK_S, **request: Any
    ) -> list[dict[str, Any]]:
        """Have checks run and return one result for each; never raises.

        Args:
            checks: as in `cordee.checks.run_checks`.
            deadline_s: for all of them.
            patience_s: how much longer the answer may take.
            request: what else a request may hold.
        """
        self._count += 1
        identifier = f"checks-{self._key}-{self._count}"
        waiting = self._waiting[identifier] = asyncio.get_running_loop().create_future()
        self._output[identifier] = b""
        full = {**request, "checks": checks, "deadline_s": deadline_s, "node": self.name}
        message = {"t": "checks", "id": identifier, "request": full, "deadline_s": deadline_s + _SLACK_S}
        done: Optional[dict[str, Any]] = {"lost": True, "text": "its agent is gone"}
        if self._send(message):
            done = await _within(waiting, deadline_s + patience_s)
        del self._waiting[identifier]
        return _complete(checks, self._output.pop(identifier), done)

    async def free_port(self) -> Optional[int]:
        """Return a port that is free on the node, or None."""
        self._ports = asyncio.get_running_loop().create_future()
        if not self._send({"t": "port", "host": self.address, "count": 1}):
            return None
        done = await _within(self._ports, _PORT_S)
        self._ports = None
        return done["ports"][0] if done is not None and done["ports"] else None

    async def clock(self) -> Optional[tuple[float, float]]:
        """Return by how many seconds the node's clock is ahead of ours and how sure that is, or None.

        Of a few exchanges the quickest counts: half of its time is the uncertainty.
        """
        best: Optional[tuple[float, float]] = None
        for _ in range(_CLOCK_EXCHANGES):
            self._clock = asyncio.get_running_loop().create_future()
            sent, started = unix_s(), monotonic()
            if not self._send({"t": "clock"}):
                return best
            done = await _within(self._clock, _CLOCK_S)
            if done is None or "unix_s" not in done:
                return best
            half = (monotonic() - started) / 2
            if best is None or half < best[1]:
                best = (done["unix_s"] - (sent + half), half)
        return best


def _complete(checks: list[dict[str, Any]], output: bytes, done: Optional[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results in the order of the checks, with `unknown` in place of those that did not come."""
    results: dict[str, dict[str, Any]] = {}
    for line in output.split(b"\n"):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        results[result["name"]] = result
    why, cause = "no answer in time", "silent"
    if done is not None:
        cause = "silent" if done.get("lost") else "error"
        why = done.get("text") or f"the checks ended with {done.get('signal') or done.get('code')}"
    for check in checks:
        name = check.get("name") or check["check"]
        if name not in results:
            results[name] = unknown_result(check, why, cause)
    return [results[check.get("name") or check["check"]] for check in checks]


def _settle(future: asyncio.Future[dict[str, Any]], message: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(message)


async def _within(future: asyncio.Future[dict[str, Any]], seconds: float) -> Optional[dict[str, Any]]:
    try:
        return await asyncio.wait_for(asyncio.shield(future), seconds)
    except asyncio.TimeoutError:
        return None
