"""A node that takes part in a vetting, as the one who conducts it sees it."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from cordee.core.clock import monotonic, unix_s
from cordee.systems.vetting.node.checks import unknown_result
from cordee.wire.messages import Checks, ChecksDone, ChecksOutput, Clock, FreePorts, Port, Time

_SLACK_S = 5.0
_PORT_S = 10.0
_CLOCK_S = 1.0
_CLOCK_EXCHANGES = 3

Question = Union[Checks, Port, Clock]
Answer = Union[ChecksOutput, ChecksDone, FreePorts, Time]
Send = Callable[[Question], bool]
Awaited = TypeVar("Awaited")


class Lost(NamedTuple):
    """The node that was asked is gone."""

    text: str


_End = Union[ChecksDone, FreePorts, Time, Lost]


class VettedNode:
    """One node, over messages that agents and the tasks of `cordee vet` both understand.

    Args:
        name: the node's name.
        send: hands a question to the node; False when it is gone.
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
        self._waiting: dict[str, asyncio.Future[_End]] = {}
        self._output: dict[str, bytes] = {}

    def message(self, answer: Answer, body: bytes) -> None:
        """Take what the node answers; what nobody waits for is left alone."""
        if isinstance(answer, ChecksOutput):
            if answer.id in self._output:
                self._output[answer.id] += body
        elif answer.id in self._waiting:
            _settle(self._waiting[answer.id], answer)

    def lost(self, reason: str) -> None:
        """The node is gone: whatever is awaited will not come."""
        for future in self._waiting.values():
            _settle(future, Lost(reason))

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
        done = await self._ask(Checks(identifier, full, deadline_s + _SLACK_S), deadline_s + patience_s)
        return _complete(checks, self._output.pop(identifier), done)

    async def free_port(self) -> Optional[int]:
        """Return a port that is free on the node, or None."""
        done = await self._ask(Port(self._new("port"), self.address, 1), _PORT_S)
        return done.ports[0] if isinstance(done, FreePorts) and done.ports else None

    async def clock(self) -> Optional[tuple[float, float]]:
        """Return by how many seconds the node's clock is ahead of ours and how sure that is, or None.

        Of a few exchanges the quickest counts: half of its time is the uncertainty.
        """
        best: Optional[tuple[float, float]] = None
        for _ in range(_CLOCK_EXCHANGES):
            sent, started = unix_s(), monotonic()
            done = await self._ask(Clock(self._new("clock")), _CLOCK_S)
            if not isinstance(done, Time):
                return best
            half = (monotonic() - started) / 2
            if best is None or half < best[1]:
                best = (done.unix_s - (sent + half), half)
        return best

    def _new(self, what: str) -> str:
        """Return an identifier by which the answer to a question is known."""
        self._count += 1
        return f"{what}-{self._key}-{self._count}"

    async def _ask(self, question: Question, most_s: float) -> Optional[_End]:
        """Return the answer, `Lost` when the node goes, None when nothing comes in time."""
        waiting = self._waiting[question.id] = asyncio.get_running_loop().create_future()
        if not self._send(question):
            self.lost("its agent is gone")
        try:
            return await within(waiting, most_s, self._away_s)
        finally:
            del self._waiting[question.id]


async def within(
    future: asyncio.Future[Awaited], seconds: float, away_s: Callable[[], float] = float
) -> Optional[Awaited]:
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


def _complete(checks: list[dict[str, Any]], output: bytes, done: Optional[_End]) -> list[dict[str, Any]]:
    """Return the results in the order of the checks, with `unknown` in place of those that did not come."""
    results: dict[str, dict[str, Any]] = {}
    for line in output.split(b"\n"):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        results[result["name"]] = result
    why, cause = "no answer in time", "silent"
    if isinstance(done, Lost):
        why = done.text
    elif isinstance(done, ChecksDone):
        why, cause = done.text or f"the checks ended with {done.signal or done.code}", "error"
    for check in checks:
        name = check.get("name") or check["check"]
        if name not in results:
            results[name] = unknown_result(check, why, cause)
    return [results[check.get("name") or check["check"]] for check in checks]


def _settle(future: asyncio.Future[_End], end: _End) -> None:
    if not future.done():
        future.set_result(end)
