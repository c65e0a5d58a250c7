"""Setting nodes up and vetting them, all at once, each within a deadline: a node that does not answer is unknown."""

from __future__ import annotations

import asyncio
from typing import Any

from cordee.checks import checks_for, unknown_result
from cordee.supervise.nodes import Node
from cordee.vetting.member import Member
from cordee.vetting.verdict import verdict

_SETUP_DEADLINE_S = 600.0
_SLACK_S = 5.0
_SETUP = {"check": "setup"}


class NodePreparation:
    """Prepares one node: set-up lines first, since they may bring what the checks look for, then the checks."""

    def __init__(self, node: Node, step: dict[str, Any], folder: str) -> None:
        self.node = node
        self.incarnation = node.incarnation
        self.member = Member(node.name, node.send, node.address)
        self._step = step
        self._folder = folder
        self._setup_done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def message(self, message: dict[str, Any], body: bytes) -> None:
        """Take what the agent says about set-up and checks."""
        if message["t"] == "setup_done" and not self._setup_done.done():
            self._setup_done.set_result(message)
        self.member.message(message, body)

    def lost(self, reason: str) -> None:
        """The agent is gone: whatever is awaited will not come."""
        if not self._setup_done.done():
            self._setup_done.set_result({"ok": False, "text": reason, "lost": True})
        self.member.lost(reason)

    async def run(self) -> None:
        """Set up and vet; leaves the verdict and the results on the node."""
        results = []
        if self._step["tasks"]["setup"]:
            failed = await self._set_up()
            results.append(failed)
            if failed["status"] != "pass":
                self._judge(results)
                return
        wanted = checks_for(self._step["vet"], self._folder, self._step["tasks"]["argv"][0], {})
        results += await self.member.check(wanted, self._step["vet"]["deadline_s"])
        self._judge(results)

    def _judge(self, results: list[dict[str, Any]]) -> None:
        if self.node.incarnation == self.incarnation:
            self.node.results = results
            self.node.verdict = verdict(results)
            self.node.ready = True

    async def _set_up(self) -> dict[str, Any]:
        self.node.send({"t": "setup", "deadline_s": _SETUP_DEADLINE_S})
        try:
            done = await asyncio.wait_for(asyncio.shield(self._setup_done), _SETUP_DEADLINE_S + _SLACK_S)
        except asyncio.TimeoutError:
            return unknown_result(_SETUP, "the set-up lines did not end in time", "timeout")
        if done.get("lost"):
            return unknown_result(_SETUP, done["text"], "silent")
        result = unknown_result(_SETUP, done["text"], "error")
        return {
            **result,
            "status": "pass" if done["ok"] else "fail",
            "cause": None,
            "seconds": done.get("seconds", 0.0),
        }
