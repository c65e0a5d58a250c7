"""Staging over the nodes of a run, led from its supervisor: listed once, read once, given from node to node."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Callable, Optional, Sequence

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import DataStaged
from cordee.control.supervisor.preparer import PreparedAllocation
from cordee.control.supervisor.stager import DataStager
from cordee.core.clock import monotonic
from cordee.core.errors import CordeeError
from cordee.core.units import format_size
from cordee.wire.messages import StageOrder, Staging

SYSTEM = "data"
_BEGIN_S = 60.0
_LIST_S = 3600.0
# Spares stage while ranks run: no faster than this.
SPARE_BYTES_PER_S = 64 << 20
# A source that changes again and again is refused.
_LISTINGS = 3


class StagingRefused(CordeeError):
    """The data of a run cannot be brought to its nodes."""

    kind = "data"


class NodeGone(Exception):
    """A node was lost."""


class _Stage:
    """What is known of the process that stages on one node."""

    def __init__(self, node: Node, begun: str) -> None:
        self.node, self.begun = node, begun
        self.port: Optional[int] = None
        self.listed: dict[str, dict[str, Any]] = {}
        self.staged: dict[str, dict[str, Any]] = {}
        self.done = False
        self.ended: Optional[str] = None


class RunStager(DataStager):
    """See DataStager. A process on each node reads its share of the source and has the rest from the others."""

    def __init__(self, allocation: PreparedAllocation) -> None:
        super().__init__(allocation)
        self._sets = [one for one in allocation.plan.step.data if one.get("stage")]
        self._token = secrets.token_hex(32)
        self._count = 0
        self._at_work: dict[str, _Stage] = {}
        self._manifests: dict[str, dict[str, Any]] = {}
        # By name and incarnation: who has all of it, and who has been asked to bring it.
        self._have: dict[str, int] = {}
        self._staging: dict[str, int] = {}
        self._news = asyncio.Event()
        self._beside: Optional[asyncio.Future[None]] = None

    async def stage(self, chosen: Sequence[str]) -> DataStaged:
        if not self._sets:
            return DataStaged(monotonic())
        if self._beside is not None:
            self._beside.cancel()
            self._beside = None
        began, sizes = (
            monotonic(),
            [{"name": one["name"], "place": one["place"], "to": one["to"]} for one in self._sets],
        )
        self.allocation.journal.append("staging_started", durable=False, nodes=list(chosen), sets=sizes)
        try:
            for _ in range(_LISTINGS):
                changed = await self._stage_on(chosen, None)
                if not changed:
                    break
                self._manifests = {}
            else:
                raise StagingRefused(changed, given=", ".join(one["place"] for one in self._sets))
        except StagingRefused as error:
            self._end(list(self._at_work))
            text = f"{error.text}: {error.given}" + (f"; {error.next}" if error.next else "")
            return DataStaged(monotonic(), text)
        except NodeGone as error:
            return DataStaged(monotonic(), None, str(error))
        source = sum(said["source_bytes"] for one in chosen for said in self._at_work[one].staged.values())
        self.allocation.journal.append(
            "staging_ended", durable=False, nodes=len(chosen), source_bytes=source, seconds=monotonic() - began
        )
        spares = [
            node.name
            for node in self.allocation.nodes.values()
            if node.name not in chosen
            and node.ready
            and node.session is not None
            and node.verdict not in ("bad", "unknown")
        ]
        if spares:
            self._beside = asyncio.ensure_future(self._stage_beside(spares))
        else:
            self._end(list(self._at_work))
        return DataStaged(monotonic())

    def message(self, node: Node, message: Staging) -> None:
        at_work, said = self._at_work.get(node.name), message.said
        if at_work is None or said.get("begun") != at_work.begun:
            return
        if "port" in said:
            at_work.port = said["port"]
        elif "listed" in said:
            at_work.listed[said["listed"]] = said
        elif "staged" in said:
            at_work.staged[said["staged"]] = said
            if "fault" not in said and node.name not in self._have:
                kept = ("tier", "path", "bytes", "source_bytes", "peer_bytes", "seconds", "reason", "corrupt", "gone")
                about = {key: said[key] for key in kept if key in said}
                self.allocation.journal.append(
                    "node_staged", durable=False, node=node.name, data=said["staged"], **about
                )
        elif "seen" in said:
            for finding in said["findings"]:
                self.allocation.journal.append("finding", finding=finding)
        elif "done" in said:
            at_work.done = True
            if all("fault" not in one and one["tier"] != "shared" for one in at_work.staged.values()):
                self._have[node.name] = node.incarnation
        elif "ended" in said:
            at_work.ended = said["ended"]
        self._news.set()

    def lost(self, node: Node, reason: str) -> None:
        self._have.pop(node.name, None)
        self._staging.pop(node.name, None)
        at_work = self._at_work.get(node.name)
        if at_work is not None:
            at_work.ended = "its agent is gone"
            at_work.port = None
            self._news.set()

    async def _stage_beside(self, spares: Sequence[str]) -> None:
        """Stage on nodes that stand by, slowly; what fails there is found when they are wanted."""
        try:
            await self._stage_on(spares, SPARE_BYTES_PER_S)
        except (StagingRefused, NodeGone):
            pass
        self._end(list(self._at_work))

    async def _stage_on(self, chosen: Sequence[str], rate: Optional[float]) -> str:
        """Stage on these nodes; return why all has to be listed anew, if it has.

        Raises:
            StagingRefused: a data set cannot be staged. NodeGone: one of the nodes was lost.
        """
        helpers = [name for name in self._alive(self._have) if name not in chosen]
        names = [*chosen, *helpers]
        # Whoever has it gives it to the others, else who is bringing it: nobody else reads the source again.
        before = self._alive(self._have) or [name for name in self._alive(self._staging) if name in names]
        for name in names:
            self._begin(name)
        await self._until(names, lambda at_work: at_work.port is not None, _BEGIN_S, "did not begin to stage")
        await self._list(chosen[0])
        sets: list[dict[str, Any]] = [
            {
                "name": one["name"],
                "place": one["place"],
                "to": one["to"],
                "tiers": one["stage"]["tiers"],
                "prepare": one["stage"].get("prepare") or [],
                "parted": one["stage"].get("part", False),
                "manifest": self._manifests[one["name"]]["manifest"],
            }
            for one in self._sets
        ]
        peers = [[name, self.allocation.nodes[name].address, self._at_work[name].port] for name in before or names]
        for name in names:
            at_work = self._at_work[name]
            at_work.staged, at_work.done = {}, False
            self._staging[name] = at_work.node.incarnation
            lists_again = name == chosen[0] and not before
            part = (chosen.index(name), len(chosen)) if rate is None and name in chosen else None
            own = [{**one, "part": part if one["parted"] else None} for one in sets if part or not one["parted"]]
            asked = {"do": "stage", "sets": own, "peers": peers, "rate": rate, "lists_again": lists_again}
            self.allocation.order(at_work.node, StageOrder(SYSTEM, asked))
        await self._until(chosen, lambda at_work: at_work.done, None, "staged nothing")
        for name in chosen:
            for said in self._at_work[name].staged.values():
                if said.get("changed"):
                    self._have, self._staging = {}, {}
                    return str(said["fault"])
                if "fault" in said:
                    text = f"{name} cannot stage the data set {said['staged']}: {said['fault']}"
                    raise StagingRefused(text, given=said["given"], next=said["next"] or None)
        return ""

    def _alive(self, names: dict[str, int]) -> list[str]:
        nodes = self.allocation.nodes
        return [name for name, number in names.items() if nodes[name].incarnation == number and nodes[name].session]

    def _begin(self, name: str) -> None:
        node, at_work = self.allocation.nodes[name], self._at_work.get(name)
        if at_work is not None and at_work.ended is None and at_work.node is node:
            return
        self._count += 1
        begun = f"{self._token[:8]}-{self._count}"
        self._at_work[name] = _Stage(node, begun)
        request = {"do": "begin", "host": node.address, "token": self._token, "begun": begun}
        if not self.allocation.order(node, StageOrder(SYSTEM, request)):
            self._at_work[name].ended = "its agent is gone"

    async def _list(self, name: str) -> None:
        """Have one node list what is not listed yet."""
        wanted = [(place, one) for place, one in enumerate(self._sets) if one["name"] not in self._manifests]
        at_work = self._at_work[name]
        at_work.listed = {}
        self._count += 1
        for place, one in wanted:
            out = f"{self.allocation.folder}/control/stage/{place}-{self._token[:8]}-{self._count}.json"
            asked = {"do": "list", "set": one["name"], "from": one["place"], "packed": False, "out": out}
            asked["prepare"] = one["stage"].get("prepare") or []
            self.allocation.order(at_work.node, StageOrder(SYSTEM, asked))
        await self._until(
            [name], lambda stage: len(stage.listed) == len(wanted), _LIST_S, "did not list the data in time"
        )
        for _, one in wanted:
            said = at_work.listed[one["name"]]
            if "fault" in said:
                text = f"the data set {one['name']} cannot be staged: {said['fault']}"
                raise StagingRefused(text, given=said["given"], next=said["next"] or None)
            self._manifests[one["name"]] = said
            size = format_size(said["bytes"])
            self.allocation.journal.append(
                "data_listed", durable=False, data=one["name"], bytes=said["bytes"], files=said["files"], size=size
            )

    async def _until(
        self, names: Sequence[str], ready: Callable[[_Stage], bool], most_s: Optional[float], late: str
    ) -> None:
        until = None if most_s is None else monotonic() + most_s
        while True:
            self._news.clear()
            waiting = [name for name in names if not ready(self._at_work[name])]
            for name in waiting:
                if self._at_work[name].ended is not None:
                    if self.allocation.nodes[name].session is None or self._at_work[name].ended == "its agent is gone":
                        raise NodeGone(name)
                    text = f"{name} {late}: its process ended: {self._at_work[name].ended}"
                    raise StagingRefused(text, given=name, next="see its log in the run's folder")
            if not waiting:
                return
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise StagingRefused(f"{', '.join(waiting)} {late}", given=f"{most_s:g} s", next="look at these nodes")
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except asyncio.TimeoutError:
                continue

    def _end(self, names: Sequence[str]) -> None:
        """End the processes: nobody wants anything of them any more."""
        for name in names:
            at_work = self._at_work.pop(name)
            if at_work.ended is None and at_work.node.session is not None:
                self.allocation.order(at_work.node, StageOrder(SYSTEM, {"do": "end"}))
