"""What Slurm's variables say to a rank that the agent forked: what srun would have said, had it started the ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional

from cordee.control.world import AttemptWorld
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes, fold_nodes

_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def rank_environment(
    base: Mapping[str, str], world: AttemptWorld, rank: int, cpus_per_rank: Optional[int]
) -> dict[str, str]:
    """Return what a rank finds beside the variables of Cordée: nothing where its agent is in no job."""
    return slurm_environment(base, world, rank, cpus_per_rank) if "SLURM_JOB_ID" in base else {}


def slurm_environment(
    base: Mapping[str, str], world: AttemptWorld, rank: int, cpus_per_rank: Optional[int]
) -> dict[str, str]:
    """Return Slurm's variables for one rank, over those of the agent.

    They describe the nodes of this attempt, not those of the job: a script that reads SLURM_JOB_NODELIST must not meet a
    node that was left out. SLURM_STEP_ID stays unset: with it Open MPI looks for a process manager, finds none and gives up.

    Args:
        base: the agent's environment.
        world: this attempt's world on this node.
        rank: the global rank.
        cpus_per_rank: what the job asks for, if it does.
    """
    per_node = fold_counts([world.ranks_per_node] * len(world.nodes))
    size, nodes, names = str(world.size), str(len(world.nodes)), fold_nodes(world.nodes)
    env = {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank - world.local_ranks.start),
        "SLURM_NODEID": str(world.node_rank),
        "SLURM_GTIDS": ",".join(map(str, world.local_ranks)),
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_NTASKS_PER_NODE": str(world.ranks_per_node),
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NODELIST": names,
        "SLURM_STEP_NODELIST": names,
    }
    if cpus_per_rank:
        env["SLURM_CPUS_PER_TASK"] = str(cpus_per_rank)
    cpus = _counts_of(base.get("SLURM_JOB_CPUS_PER_NODE", ""), base.get("SLURM_JOB_NODELIST", ""), world.nodes)
    if cpus is not None:
        env["SLURM_JOB_CPUS_PER_NODE"] = fold_counts(cpus)
    return env


def fold_counts(counts: Sequence[int]) -> str:
    """Return one number for each node as Slurm writes them: `4(x2),8`."""
    runs: list[tuple[int, int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1] = (count, runs[-1][1] + 1)
        else:
            runs.append((count, 1))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def _counts_of(counts: str, job_nodes: str, nodes: Sequence[str]) -> Optional[list[int]]:
    """Return the numbers that belong to `nodes`, or None when the job's variables do not fit together."""
    expanded: list[int] = []
    for part in counts.split(","):
        found = _COUNT.fullmatch(part.strip())
        if found is None:
            return None
        expanded += [int(found.group(1))] * int(found.group(2) or 1)
    try:
        of_node = dict(zip(expand_nodes(job_nodes), expanded))
    except CordeeError:
        return None
    return [of_node[node] for node in nodes] if all(node in of_node for node in nodes) else None
