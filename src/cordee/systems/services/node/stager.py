"""The services of a job, led from its supervisor: on one node, ready before ranks start, ended after them."""

from __future__ import annotations

import asyncio
from typing import Any, Optional, Sequence

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import DataStaged
from cordee.control.supervisor.preparer import PreparedAllocation
from cordee.control.supervisor.stager import DataStager
from cordee.core.clock import monotonic
from cordee.core.findings import Finding
from cordee.systems.services.node.companion import SYSTEM
from cordee.systems.services.node.texts import hosts_of
from cordee.wire.messages import StageOrder, Staging

# Before ranks start: what ends so often has no chance.
_TRIES = 3
_SLACK_S = 150.0


class ServiceStager(DataStager):
    """See DataStager. The first node of an attempt has them; where it is lost, the next attempt's."""

    def __init__(self, allocation: PreparedAllocation) -> None:
        super().__init__(allocation)
        self._specs: dict[str, dict[str, Any]] = hosts_of(allocation.plan.step.systems)
        self._where: Optional[tuple[str, int]] = None
        self._said: dict[str, dict[str, Any]] = {}
        self._failures: dict[str, int] = {}
        self._staging = False
        self._news = asyncio.Event()

    async def stage(self, chosen: Sequence[str]) -> DataStaged:
        if not self._specs:
            return DataStaged(monotonic())
        nodes, now = self.allocation.nodes, self._node()
        if now is None or now.name not in chosen:
            if now is not None:
                await self._end(now)
            now = nodes[chosen[0]]
            self._where = now.name, now.incarnation
        self._said, self._failures, self._staging = {}, {}, True
        try:
            return await self._wait(now)
        finally:
            self._staging = False

    async def _wait(self, node: Node) -> DataStaged:
        until = monotonic() + max(one["ready"]["within_s"] for one in self._specs.values()) + _SLACK_S
        ordered = self.allocation.order(node, StageOrder(SYSTEM, {"do": "serve", "address": node.address}))
        while True:
            self._news.clear()
            if not ordered or self._node() is None:
                return DataStaged(monotonic(), None, node.name)
            waiting = [name for name in self._specs if self._said.get(name, {}).get("state") != "ready"]
            if not waiting:
                return DataStaged(monotonic())
            hopeless = [name for name in waiting if self._failures.get(name, 0) >= _TRIES]
            late = monotonic() > until
            if hopeless or late:
                name = (hopeless or waiting)[0]
                why = self._said.get(name, {}).get("why") or "its node said nothing of it"
                text = f"the service {name} did not become ready: {why}; its output: services/{name}.log of the run's folder"
                return DataStaged(monotonic(), text)
            try:
                await asyncio.wait_for(self._news.wait(), max(0.1, until - monotonic()))
            except asyncio.TimeoutError:
                continue

    def message(self, node: Node, message: Staging) -> None:
        said = message.said
        name, state = said["service"], said.get("state")
        if self._where != (node.name, node.incarnation) or state is None:
            return
        before, self._said[name] = self._said.get(name, {}), said
        self._news.set()
        if state == before.get("state") or state not in ("ready", "failed", "stopped"):
            return
        url = next((one["url"] for one in said.get("endpoints") or ()), None)
        about = {"node": node.name, "state": state, "why": said.get("why"), "url": url}
        self.allocation.journal.append(
            "service", durable=False, service=name, seconds=said.get("ready_after_s"), **about
        )
        if state == "failed":
            self._failures[name] = _TRIES if said.get("hopeless") else self._failures.get(name, 0) + 1
            if not self._staging and self._failures[name] == 1:
                self._find(name, node, str(said.get("why")))

    def _find(self, name: str, node: Node, why: str) -> None:
        text = f"the service {name} ended while ranks ran, and was started again: {why}"
        finding = Finding(
            text,
            "warn",
            "service-ended",
            evidence={"nodes": [node.name]},
            next=f"see services/{name}.log of the run's folder",
        )
        self.allocation.journal.append("finding", durable=False, finding=finding.document())

    def lost(self, node: Node, reason: str) -> None:
        self._news.set()

    async def close(self) -> None:
        node = self._node()
        if node is not None:
            await self._end(node)

    async def _end(self, node: Node) -> None:
        """Have them end on a node, and wait for that as long as the node lives."""
        if not self.allocation.order(node, StageOrder(SYSTEM, {"do": "end"})):
            return
        while (
            any(one.get("state") not in ("stopped", "failed") for one in self._said.values()) and self._node() is node
        ):
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), 1.0)
            except asyncio.TimeoutError:
                continue

    def _node(self) -> Optional[Node]:
        """Return the node that has them, None where it is gone."""
        if self._where is None:
            return None
        node = self.allocation.nodes[self._where[0]]
        return node if node.incarnation == self._where[1] and node.session is not None else None
