"""A trial of several ranks: the nodes that it has, where its ranks meet, what each is told, and how their ends are one end."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from cordee.client.variables import WORLD
from cordee.control.agent.ranks.environment import rank_environment
from cordee.control.world import AttemptWorld
from cordee.machine.tasks.task import TaskExit
from cordee.runs.plan import RunPlan
from cordee.systems.trials.node.task_states import HALVED

# What the only rank of a node's pool is told, and no task of the pool is: each has a world of its own, or none.
_OF_THE_POOL = (*WORLD, "CORDEE_CHANNEL", "CORDEE_RESUME_FROM")
_OF_TORCHRUN = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
# A torchrun that is to meet others of its trial on the same node.
_JOINS = re.compile(r"--nnodes[= ](?!1\b)")


class TrialPlaces(NamedTuple):
    """Where a trial runs: its nodes, the first rank's first, and two ports that were free there."""

    nodes: tuple[str, ...]
    ports: tuple[int, int]

    def world(self, pool: AttemptWorld, ranks: int) -> AttemptWorld:
        """Return the trial's world as the node of this pool sees it, with so many ranks on each node."""
        places = dict(zip(pool.nodes, pool.addresses))
        addresses = tuple(places[node] for node in self.nodes)
        return dataclasses.replace(
            pool,
            nodes=self.nodes,
            addresses=addresses,
            ranks_per_node=ranks,
            node_rank=self.nodes.index(pool.node),
            master_address=addresses[0],
            master_port=self.ports[0],
            coordinator_port=self.ports[1],
            resume_from=None,
        )


def environments(base: Mapping[str, str], plan: RunPlan, world: AttemptWorld) -> list[dict[str, str]]:
    """Return the environment of each rank of a trial on this node; the only rank of a world is told of none.

    On one node each torchrun makes a world on a free port of its own: several of them would all meet at port 29500, as it does before 2.13.

    Args:
        base: of the pool's rank.
        plan: the run's.
        world: the trial's.
    """
    own = plan.step.tasks.env
    of_pool = {*_OF_THE_POOL, *(name for name in _OF_TORCHRUN if name not in own)}
    left = {name: value for name, value in base.items() if name not in of_pool}
    alone = world.size == 1
    untold = _OF_THE_POOL if alone else ("CORDEE_CHANNEL",)
    joins = len(world.nodes) > 1 or (not alone and _JOINS.search(" ".join(plan.step.tasks.argv)))
    told = {} if joins or any(name.startswith("PET_") for name in own) else {"PET_STANDALONE": "1"}
    ranks = [rank_environment(left, plan, world, rank, "") for rank in world.local_ranks]
    return [{**{name: value for name, value in env.items() if name not in untold}, **told} for env in ranks]


def is_bad(code: object, reason: object) -> bool:
    """Return whether an end of one rank ends the others: not where it ended well, or was ended itself."""
    return reason not in ("stopped", HALVED) and not (code == 0 and reason == "exited")


def deciding(ends: Sequence[tuple[object, object]]) -> int:
    """Return which of several ends (code, reason), in their order, is that of the whole: an early end, the first failure, a broken-off one, the first."""
    for wanted in (
        lambda code, reason: reason == HALVED,
        is_bad,
        lambda code, reason: reason == "stopped",
        lambda code, reason: True,
    ):
        found = [index for index, (code, reason) in enumerate(ends) if wanted(code, reason)]
        if found:
            return found[0]
    raise ValueError("nothing has ended")


def as_one(ends: Sequence[TaskExit]) -> TaskExit:
    """Return how the ranks of a node ended as one end: the longest time, the largest peak, all CPU time."""
    how = ends[deciding([(end.code, end.reason) for end in ends])]
    peak, seconds = max(end.peak_bytes for end in ends), max(end.seconds for end in ends)
    return dataclasses.replace(how, seconds=seconds, peak_bytes=peak, cpu_s=sum(end.cpu_s for end in ends))


class EndedParts:
    """The nodes of trials that have ended, of which others still run."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, list[Any]]] = {}

    def clear(self) -> None:
        """Forget them: their attempt is over."""
        self._rows.clear()

    def take(self, node: str, row: list[Any], nodes: Sequence[str]) -> tuple[Optional[list[Any]], list[str]]:
        """Take how a trial ended on a node; returns how all of it has, None before, and the nodes on which it is to be broken off.

        Args:
            nodes: that the trial has, the first rank's first; none: only this one.
        """
        if not nodes:
            return row, []
        rows = self._rows.setdefault(row[0], {})
        rows[node] = row
        if len(rows) == len(nodes):
            del self._rows[row[0]]
            return whole_end(list(rows.values()), rows[nodes[0]]), []
        return None, [name for name in nodes if name not in rows] if is_bad(row[2], row[4]) else []


def whole_end(rows: Sequence[list[Any]], first: Sequence[Any]) -> list[Any]:
    """Return how the nodes of a trial ended, as they told it and in that order, as one end; `first`: of the node whose first rank gives the value."""
    row = list(rows[deciding([(one[2], one[4]) for one in rows])])
    row[5], row[6], row[7] = max(one[5] for one in rows), max(one[6] for one in rows), sum(one[7] for one in rows)
    row[9] = first[9]
    return row
