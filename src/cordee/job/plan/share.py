"""The share of a node that a job takes when it does not say how many cores it needs."""

from __future__ import annotations

from cordee.job.document import Need
from cordee.job.plan.placement import Placement
from cordee.job.profile import NodeGroupTable


def cpus_of_a_rank(need: Need, ranks_per_node: int, placement: Placement) -> int | None:
    """Return the cores of one rank: the node's cores times the share of its GPUs, divided by its ranks, at least 1.

    A job without GPUs, and one where the nodes have none, takes the cores of the whole node. None: nothing is known of
    the nodes' cores.
    """
    cores = [shape.cores * _share(need, shape) for shape in placement.shapes if shape.cores]
    return max(1, int(min(cores) / ranks_per_node + 1e-9)) if cores else None


def takes_whole_nodes(need: Need, ranks_per_node: int, cpus_per_rank: int | None, placement: Placement) -> bool:
    """Return whether nothing of its nodes is left for other jobs: all GPUs, or all cores where it asks for no GPU."""
    known = [shape for shape in placement.shapes if shape.cores]
    if not known:
        return False
    if need.cpus_per_rank is None:
        return all(_share(need, shape) == 1 for shape in known)
    return all(ranks_per_node * (cpus_per_rank or 1) >= (shape.cores or 0) for shape in known)


def _share(need: Need, shape: NodeGroupTable) -> float:
    return min(1.0, need.gpus_per_node / shape.gpus) if need.gpus_per_node and shape.gpus else 1.0
