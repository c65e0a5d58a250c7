"""A node that takes part in a vetting, as the one who conducts it sees it."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Callable, Optional, TypeVar

from cordee.checks import unknown_result
from cordee.clock import monotonic, unix_s

_SLACK_S = 5.0
_PORT_S = 10.0
_CLOCK_S = 1.0
_CLOCK_EXCHANGES = 3

Send = Callable[[dict[str, Any]], bool]
Answer = TypeVar("Answer")


class Member:
    """One node, over messages that agents and the tasks of `cordee vet` both understand.

    It is asked with `checks {id, request, deadline_s}` and answers with `checks_output {id}` (the body is a part of JSON
    lines, one result each) and `checks_done {id, code, signal, text}`; with `port {id, host, count}`, answered by
    `port {id, ports, text}`; with `clock {id}`, answered by `clock {id, unix_s}`.

    Args:
        name: the node's name.
        send: hands a message to the node; False when it is gone.
        address: where other nodes reach it.
        away_s: returns for how many seconds, all in all, nothing could be heard of the node: no answer is late for that.
    """

    def __init__(self, name: str, send: Send, address: str, away_s: Callable[[], float] = float) -> None:
        self.name = name
        self.address = address
        self._send = send
        self._away_s = away_s
        self._count = 0
        self._key = secrets.token_hex(4)
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._output: dict[str, bytes] = {}

    def message(self, message: dict[str, Any], body: bytes) -> None:
        """Take what the node says; other messages than those above are left alone."""
        kind, identifier = message.get("t"), message.get("id", "")
        if kind == "checks_output" and identifier in self._output:
            self._output[identifier] += body
        elif kind in ("checks_done", "port", "clock") and identifier in self._waiting:
            _settle(self._waiting[identifier], message)

    def lost(self, reason: str) -> None:
        """The node is gone: whatever is awaited will not come."""
        for future in self._waiting.values():
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
        identifier = self._new("checks")
        self._output[identifier] = b""
        full = {**request, "checks": checks, "deadline_s": deadline_s, "node": self.name}
        message = {"t": "checks", "id": identifier, "request": full, "deadline_s": deadline_s + _SLACK_S}
        done = await self._ask(message, deadline_s + patience_s)
        return _complete(checks, self._output.pop(identifier), done)

    async def free_port(self) -> Optional[int]:
        """Return a port that is free on the node, or None."""
        done = await self._ask({"t": "port", "id": self._new("port"), "host": self.address, "count": 1}, _PORT_S)
        return done["ports"][0] if done is not None and done["ports"] else None

    async def clock(self) -> Optional[tuple[float, float]]:
        """Return by how many seconds the node's clock is ahead of ours and how sure that is, or None.

        Of a few exchanges the quickest counts: half of its time is the uncertainty.
        """
        best: Optional[tuple[float, float]] = None
        for _ in range(_CLOCK_EXCHANGES):
            sent, started = unix_s(), monotonic()
            done = await self._ask({"t": "clock", "id": self._new("clock")}, _CLOCK_S)
            if done is None or "unix_s" not in done:
                return best
            half = (monotonic() - started) / 2
            if best is None or half < best[1]:
                best = (done["unix_s"] - (sent + half), half)
        return best

    def _new(self, what: str) -> str:
        """Return an identifier by which the answer to a question is known."""
        self._count += 1
        return f"{what}-{self._key}-{self._count}"

    async def _ask(self, message: dict[str, Any], most_s: float) -> Optional[dict[str, Any]]:
        """Return the answer, None when it does not come in time; one without a node behind it has `lost`."""
        waiting = self._waiting[message["id"]] = asyncio.get_running_loop().create_future()
        if not self._send(message):
            self.lost("its agent is gone")
        try:
            return await within(waiting, most_s, self._away_s)
        finally:
            del self._waiting[message["id"]]


async def within(
    future: asyncio.Future[Answer], seconds: float, away_s: Callable[[], float] = float
) -> Optional[Answer]:
    """Return a node's answer, or None when it does not come in time.

    Args:
        future: the answer.
        seconds: that the node has for it.
        away_s: returns for how long, all in all, nothing could be heard of the node; that time does not count.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + seconds - away_s()
    while True:
        left = deadline + away_s() - now()
        if left <= 0:
            return None
        try:
            return await asyncio.wait_for(asyncio.shield(future), left)
        except asyncio.TimeoutError:
            continue


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
