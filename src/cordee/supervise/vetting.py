"""Setting nodes up and vetting them, all at once, each within a deadline: a node that does not answer is unknown."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Optional

from cordee.node.checks import checks_for, verdict
from cordee.supervise.nodes import Node

_SETUP_DEADLINE_S = 600.0
_SLACK_S = 5.0


class NodePreparation:
    """Prepares one node: set-up lines first, since they may bring what the checks look for, then the checks."""

    def __init__(self, node: Node, step: dict[str, Any], folder: str, identifier: str) -> None:
        self.node = node
        self.incarnation = node.incarnation
        self._step = step
        self._folder = folder
        self._id = identifier
        self._setup_done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._checks_done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._output = b""

    def message(self, message: dict[str, Any], body: bytes) -> None:
        """Take what the agent says about set-up and checks."""
        kind = message["t"]
        if kind == "setup_done" and not self._setup_done.done():
            self._setup_done.set_result(message)
        elif kind == "checks_output" and message["id"] == self._id:
            self._output += body
        elif kind == "checks_done" and message["id"] == self._id and not self._checks_done.done():
            self._checks_done.set_result(message)

    def lost(self, reason: str) -> None:
        """The agent is gone: whatever is awaited will not come."""
        for future in (self._setup_done, self._checks_done):
            if not future.done():
                future.set_result({"ok": False, "text": reason, "reason": "lost", "code": None, "signal": None})

    async def run(self) -> None:
        """Set up and vet; leaves the verdict and the results on the node."""
        results = []
        if self._step["tasks"]["setup"]:
            failed = await self._set_up()
            results.append(failed)
            if failed["status"] != "pass":
                self._judge(results)
                return
        results += await self._check()
        self._judge(results)

    def _judge(self, results: list[dict[str, Any]]) -> None:
        if self.node.incarnation == self.incarnation:
            self.node.results = results
            self.node.verdict = verdict(results)
            self.node.ready = True

    async def _set_up(self) -> dict[str, Any]:
        self.node.send({"t": "setup", "deadline_s": _SETUP_DEADLINE_S})
        done = await self._within(self._setup_done, _SETUP_DEADLINE_S + _SLACK_S)
        if done is None:
            return _result("setup", "unknown", "the set-up lines did not end in time", _SETUP_DEADLINE_S)
        status = "pass" if done["ok"] else ("unknown" if done.get("reason") == "lost" else "fail")
        return _result("setup", status, done["text"], done.get("seconds", 0.0))

    async def _check(self) -> list[dict[str, Any]]:
        tasks, vet = self._step["tasks"], self._step["vet"]
        wanted = checks_for(vet, self._folder, tasks["argv"][0], {})
        deadline = vet["deadline_s"]
        request = {"checks": wanted, "deadline_s": deadline}
        self.node.send({"t": "checks", "id": self._id, "request": request, "deadline_s": deadline + _SLACK_S})
        done = await self._within(self._checks_done, deadline + 2 * _SLACK_S)
        results = []
        for line in self._output.split(b"\n"):
            try:
                results.append(json.loads(line))
            except ValueError:
                continue
        answered = {result["check"] for result in results}
        why = "no answer in time"
        if done is not None and done.get("code") != 0:
            why = done.get("text") or f"the checks ended with {done.get('signal') or done.get('code')}"
        for check in wanted:
            if check["check"] not in answered:
                results.append(_result(check["check"], "unknown", why, 0.0))
        return results

    @staticmethod
    async def _within(future: asyncio.Future[dict[str, Any]], seconds: float) -> Optional[dict[str, Any]]:
        try:
            return await asyncio.wait_for(asyncio.shield(future), seconds)
        except asyncio.TimeoutError:
            return None


def _result(check: str, status: str, evidence: str, seconds: float) -> dict[str, Any]:
    return {
        "check": check,
        "status": status,
        "value": None,
        "unit": None,
        "threshold": None,
        "evidence": evidence,
        "seconds": seconds,
    }
