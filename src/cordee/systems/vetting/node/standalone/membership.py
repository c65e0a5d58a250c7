"""Who this process is among those that vet together."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Mapping, Optional

from cordee.backends.slurm.node.addresses import reachable_address
from cordee.core.errors import CordeeError, UsageError
from cordee.core.hostlist import expand_nodes

MOST_CANDIDATES = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?\Z")


@dataclass(frozen=True)
class VettingRoster:
    """All tasks of one vetting, and this one's place among them.

    Attributes:
        identity: names this vetting among all that use the same folder.
        nodes: names of the nodes, in the step's order.
        tasks: how many tasks each node has, in the same order.
        index: which of the nodes this task is on.
        local: which of the node's tasks this is.
        slurm: whether Slurm started the tasks.
        unique: whether no other vetting, earlier or later, can have this identity.
        remark: what a person should know about it, or nothing.
    """

    identity: str
    nodes: tuple[str, ...]
    tasks: tuple[int, ...]
    index: int
    local: int
    slurm: bool = False
    unique: bool = False
    remark: str = ""

    @property
    def node(self) -> str:
        """Name of this task's node."""
        return self.nodes[self.index]

    @property
    def alone(self) -> bool:
        """Whether this is the only task."""
        return sum(self.tasks) == 1

    @property
    def name(self) -> str:
        """Name of this task on the wire."""
        return f"{self.node}/{self.local}"

    @property
    def candidate(self) -> Optional[int]:
        """This task's place in the line of those that may conduct, 0 first; None when it is not in it."""
        return self.index if self.local == 0 and self.index < MOST_CANDIDATES else None

    def address(self) -> str:
        """Return where the other tasks can reach this one."""
        if self.alone or not (self.slurm or os.environ.get("CORDEE_VET_INTERFACE")):
            return "127.0.0.1"
        return reachable_address(self.node, os.environ.get("CORDEE_VET_INTERFACE"))

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> VettingRoster:
        """Return the world that the environment tells of: `CORDEE_VET_NODES` and the like, a Slurm step, or one process.

        Raises:
            UsageError: the variables contradict each other.
        """
        if environ.get("CORDEE_VET_NODES"):
            return _given(environ)
        if environ.get("SLURM_STEP_ID") and environ.get("SLURM_STEP_NODELIST"):
            return _step(environ)
        if environ.get("SLURM_JOB_ID") and environ.get("SLURMD_NODENAME"):
            count = int(environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or 1)
            remark = f"only 1 of the job's {count} nodes is vetted: put srun before cordee vet" if count > 1 else ""
            return cls(_job(environ), (environ["SLURMD_NODENAME"],), (1,), 0, 0, slurm=True, remark=remark)
        return cls(f"local-{os.getpid()}", ("local-0",), (1,), 0, 0)


def _job(environ: Mapping[str, str]) -> str:
    restarts = environ.get("SLURM_RESTART_COUNT") or "0"
    return environ["SLURM_JOB_ID"] + ("" if restarts == "0" else f"-r{restarts}")


def _step(environ: Mapping[str, str]) -> VettingRoster:
    nodes = tuple(expand_nodes(environ["SLURM_STEP_NODELIST"]))
    tasks = _tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE") or "1", len(nodes), "SLURM_STEP_TASKS_PER_NODE")
    identity = f"{_job(environ)}.{environ['SLURM_STEP_ID']}"
    index, local = int(environ.get("SLURM_NODEID") or 0), int(environ.get("SLURM_LOCALID") or 0)
    return VettingRoster(identity, nodes, tasks, index, local, slurm=True, unique=True)


def _given(environ: Mapping[str, str]) -> VettingRoster:
    try:
        nodes = tuple(expand_nodes(environ["CORDEE_VET_NODES"]))
    except CordeeError as error:
        raise UsageError(f"CORDEE_VET_NODES: {error.text}", given=error.given, allowed=error.allowed) from None
    node = environ.get("CORDEE_VET_NODE", "")
    if node not in nodes or len(set(nodes)) < len(nodes):
        raise UsageError(
            "CORDEE_VET_NODE is not one of CORDEE_VET_NODES",
            given=node or "nothing",
            allowed=environ["CORDEE_VET_NODES"],
        )
    tasks = _tasks_per_node(environ.get("CORDEE_VET_TASKS_PER_NODE") or "1", len(nodes), "CORDEE_VET_TASKS_PER_NODE")
    local = environ.get("CORDEE_VET_LOCAL_RANK") or "0"
    index = nodes.index(node)
    if not local.isdigit() or int(local) >= tasks[index]:
        raise UsageError(
            "CORDEE_VET_LOCAL_RANK is none of the node's tasks", given=local, allowed=f"0-{tasks[index] - 1}"
        )
    identity = environ.get("CORDEE_VET_ID", "")
    if not _NAME.match(identity) and (identity or sum(tasks) > 1):
        raise UsageError(
            "CORDEE_VET_ID is not set, or no name",
            given=identity or "nothing",
            allowed="letters, digits, . _ -, at most 100",
            next="give all tasks of one vetting the same name, and each vetting another",
        )
    return VettingRoster(identity or f"local-{os.getpid()}", nodes, tasks, index, int(local))


def _tasks_per_node(text: str, nodes: int, variable: str) -> tuple[int, ...]:
    """Return the number of tasks of each node from Slurm's form, `2(x3),1`; one number stands for all nodes."""
    counts: list[int] = []
    for part in text.split(","):
        match = _TASKS.match(part.strip())
        times = int(match.group(2) or 1) if match else 0
        if match is None or times > nodes:
            counts = []
            break
        counts += [int(match.group(1))] * times
    if len(counts) == 1:
        counts *= nodes
    if len(counts) != nodes or min(counts, default=0) < 1:
        raise UsageError(
            f"{variable} does not fit {nodes} nodes", given=text, allowed="a number, or Slurm's form: 2(x3),1"
        )
    return tuple(counts)
