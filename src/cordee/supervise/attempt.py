"""One attempt: ranks started together on chosen nodes, watched until all have ended or one failure ends them all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Callable, Optional

from cordee.node.lease import LEASE_OVER
from cordee.node.world import encode_places
from cordee.runs.journal import JournalWriter
from cordee.supervise.nodes import Node, Told
from cordee.supervise.restart import Failure, complains_of_peer, culprit

_SETTLE_S = 0.2
_HEAR_S = 0.1


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
        silent_s: a node that said nothing for so long may be lost.

    Attributes:
        told_to_stop: what it means when all ranks end well from now on, because they were asked to stop.
    """

    def __init__(
        self,
        number: int,
        nodes: list[Node],
        ranks_per_node: int,
        launch: str,
        journal: JournalWriter,
        silent_s: float = 2.0,
    ) -> None:
        self.number = number
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self.launch = launch
        self._journal, self._silent_s = journal, silent_s
        self._index = {node: index for index, node in enumerate(nodes)}
        self.status: dict[int, str] = dict.fromkeys(range(len(nodes) * ranks_per_node), "starting")
        self._failures: list[Failure] = []
        self._asked: dict[Node, Told] = {}
        self._stopping = False
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
        ours = report.get("reason") in ("stopped", LEASE_OVER)
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
            durable=False,  # how the attempt ended is, right after
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
        elif failed and not self._stopping:
            why = report.get("message") or "its agent ended its ranks"
            self.interrupt(Outcome("node_lost", Failure("node_lost", node=node, message=why)))
        self._changed.set()

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
        """Wait until all ranks ended well, one failed, or the attempt was interrupted.

        Where all that failed complain of a lost peer, the nodes whose ranks run must answer first, for what they said
        earlier may come late: one may be lost, and that is no failure of the run.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._interrupted is not None:
                return self._interrupted
            if self._failures:
                await asyncio.sleep(_SETTLE_S)
                if self._doubtful():
                    await self._hear_of_nodes()
                    await asyncio.sleep(_SETTLE_S)
                if self._interrupted is not None:
                    return self._interrupted
                return Outcome("failed", culprit(self._failures))
            if all(status == "ended" for status in self.status.values()):
                return self.told_to_stop or Outcome("finished")

    def _doubtful(self) -> bool:
        """Return whether what failed may have failed because of a node that is lost and not yet known to be."""
        if self._interrupted is not None or not all(complains_of_peer(failure) for failure in self._failures):
            return False
        living = self._living_nodes()
        for node in living:
            if node not in self._asked:
                self._asked[node] = node.ask()
        return any(not node.has_taken(self._asked[node]) for node in living)

    async def _hear_of_nodes(self) -> None:
        while self._doubtful():
            await self._change(_HEAR_S)

    async def stop(self, grace_s: float, most_s: float, successor: Callable[[], bool]) -> list[Node]:
        """End all ranks that still run; returns the nodes whose ranks do not end within `most_s`.

        Args:
            grace_s: between SIGTERM and SIGKILL.
            most_s: that ranks have for it once their agent has been told.
            successor: whether another attempt may follow. Then a node of which nothing is heard counts as living until it
                is heard of, or lost: its ranks may run on until their lease is over.
        """
        self._stopping = True
        now = asyncio.get_running_loop().time
        taken, began = {}, now()
        told: dict[Node, Told] = {}
        for node in self.nodes:
            node.send({"t": "stop", "group": self.group, "grace_s": grace_s})
            told[node] = node.told()
        while True:
            living = self._living_nodes()
            for node in living:
                if node not in taken and node.has_taken(told[node]):
                    taken[node] = now()
            if not successor():
                living = [node for node in living if node.connection is not None]
                overdue = living if now() - began > most_s else []
            else:
                heard = [node for node in living if node.connection is not None and node.silent_s < self._silent_s]
                overdue = [node for node in heard if now() - taken.get(node, now()) > most_s]
            if len(overdue) == len(living):
                return overdue
            await self._change(_HEAR_S)

    def all_ended(self) -> bool:
        """Return whether no rank runs any more."""
        return all(status == "ended" for status in self.status.values())

    def has(self, node: Node) -> bool:
        """Return whether a node holds ranks of this attempt."""
        return node in self._index

    def runs_on(self, node: Node) -> bool:
        """Return whether ranks of the attempt run on a node, or are to, as far as is known."""
        index = self._index.get(node)
        return index is not None and any(self.status[rank] != "ended" for rank in self.ranks_of(index))

    def _living_nodes(self) -> list[Node]:
        """Return the nodes on which ranks of the attempt run, as far as is known."""
        return [node for node in self._index if self.runs_on(node)]

    async def _change(self, most_s: float) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), most_s)
        except asyncio.TimeoutError:
            return
