"""One attempt: ranks started together on chosen nodes, watched until all have ended or one failure ends them all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Optional

from cordee.node.world import encode_places
from cordee.runs.journal import JournalWriter
from cordee.supervise.nodes import Node
from cordee.supervise.restart import Failure, culprit

_SETTLE_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: `kind` is finished, failed, node_lost, or whatever `interrupt` was given."""

    kind: str
    failure: Optional[Failure] = None
    reason: str = ""


class Attempt:
    """The ranks of one attempt.

    Args:
        number: counts from 1 over the whole run.
        nodes: in rank order.
        ranks_per_node: the same on every node.
        launch: how they are started, `fork` or `srun`.
        journal: where ranks' starts and ends are written.

    Attributes:
        told_to_stop: what it means when all ranks end well from now on, because they were asked to stop.
    """

    def __init__(
        self, number: int, nodes: list[Node], ranks_per_node: int, launch: str, journal: JournalWriter
    ) -> None:
        self.number = number
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self.launch = launch
        self._journal = journal
        self._index = {node: index for index, node in enumerate(nodes)}
        self.status: dict[int, str] = dict.fromkeys(range(len(nodes) * ranks_per_node), "starting")
        self._failures: list[Failure] = []
        self._interrupted: Optional[Outcome] = None
        self.told_to_stop: Optional[Outcome] = None
        self._changed = asyncio.Event()

    @property
    def world_size(self) -> int:
        return len(self.status)

    @property
    def group(self) -> str:
        return f"ranks-{self.number}"

    def placement(self) -> list[dict[str, Any]]:
        """Return `[{node, ranks}]` as the journal has it."""
        return [{"node": node.name, "ranks": list(self.ranks_of(index))} for index, node in enumerate(self.nodes)]

    def ranks_of(self, index: int) -> range:
        """Return the global ranks of the node at `index`."""
        return range(index * self.ranks_per_node, (index + 1) * self.ranks_per_node)

    def start(self, ports: list[int], resume_from: Optional[str]) -> None:
        """Tell the agents to start their ranks.

        Args:
            ports: two free ports on the first node: for torch's store, and for JAX's coordinator.
            resume_from: path of the checkpoint that they begin from.
        """
        message = {
            "t": "ranks",
            "attempt": self.number,
            "launch": self.launch,
            "ranks_per_node": self.ranks_per_node,
            "master_address": self.nodes[0].address,
            "master_port": ports[0],
            "coordinator_port": ports[1],
            "resume_from": resume_from,
            "epoch": self._journal.epoch,
        }
        places = encode_places([node.name for node in self.nodes], [node.address for node in self.nodes])
        for index, node in enumerate(self.nodes):
            node.send({**message, "node": node.name, "node_rank": index}, places)

    def rank_started(self, rank: int, node: str, pid: int) -> None:
        """Take an agent's word that a rank runs."""
        if self.status.get(rank) == "starting":
            self.status[rank] = "running"
            self._journal.append("rank_started", durable=False, attempt=self.number, rank=rank, node=node, pid=pid)

    def rank_ended(self, rank: int, node: str, report: dict[str, Any]) -> None:
        """Take an agent's word that a rank has ended; said twice it counts once."""
        if self.status.get(rank) in (None, "ended"):
            return
        self.status[rank] = "ended"
        failed = report.get("code") != 0
        ours = report.get("reason") == "stopped"
        failure = Failure(
            "rank",
            rank,
            node,
            report.get("code"),
            report.get("signal"),
            report.get("reason", ""),
            report.get("message"),
        )
        self._journal.append(
            "rank_exited",
            durable=failed,
            attempt=self.number,
            rank=rank,
            node=node,
            code=report.get("code"),
            signal=report.get("signal"),
            reason=report.get("reason"),
            message=report.get("message") if failed else None,
            seconds=report.get("seconds"),
        )
        if failed and not ours:
            self._failures.append(failure)
        self._changed.set()

    def has(self, node: Node) -> bool:
        """Return whether the attempt runs on a node."""
        return node in self._index

    def node_lost(self, node: Node, reason: str) -> None:
        """Say that a node and all ranks on it are gone."""
        if node in self._index:
            for rank in self.ranks_of(self._index[node]):
                self.status[rank] = "ended"
            self.interrupt(Outcome("node_lost", Failure("node_lost", node=node.name, message=reason)))

    def interrupt(self, outcome: Outcome) -> None:
        """End the attempt for a reason that lies outside its ranks; the first reason stands."""
        if self._interrupted is None:
            self._interrupted = outcome
        self._changed.set()

    async def ended(self) -> Outcome:
        """Wait until all ranks ended well, one failed, or the attempt was interrupted."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._interrupted is not None:
                return self._interrupted
            if self._failures:
                await asyncio.sleep(_SETTLE_S)
                if self._interrupted is not None:
                    return self._interrupted
                return Outcome("failed", culprit(self._failures))
            if all(status == "ended" for status in self.status.values()):
                return self.told_to_stop or Outcome("finished")

    async def stop(self, grace_s: float, most_s: float) -> bool:
        """End all ranks that still run; returns whether all are gone within `most_s`."""
        for node in self.nodes:
            node.send({"t": "stop", "group": self.group, "grace_s": grace_s})
        deadline = asyncio.get_running_loop().time() + most_s
        while any(status != "ended" for status in self._living().values()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return False
        return True

    def all_ended(self) -> bool:
        """Return whether no rank runs any more."""
        return all(status == "ended" for status in self.status.values())

    def _living(self) -> dict[int, str]:
        return {
            rank: self.status[rank]
            for index, node in enumerate(self.nodes)
            if node.connection is not None
            for rank in self.ranks_of(index)
        }
