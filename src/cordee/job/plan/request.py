"""What a job asks of its place: nodes and their parts, what runs on them, and for how long at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from cordee.client.variables import DISTRIBUTED, JAX
from cordee.job.command import CommandFacts
from cordee.job.document import Need
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.placement import Placement, chooses_partition
from cordee.job.profile import NodeGroupTable, Requeue


def request_of(loaded: LoadedJob, placement: Placement, command: CommandFacts) -> model.Request:
    """Return what a job asks of its place."""
    need = loaded.job.need
    given = need.ranks_per_node
    by_itself = 1 if command.launches or loaded.job.pools else max(1, need.gpus_per_node)
    ranks = given if isinstance(given, int) and not loaded.job.pools else by_itself
    cpus = need.cpus_per_rank or _cpus_of_a_rank(need, ranks, placement)
    return model.Request(
        nodes=need.nodes,
        spare_nodes=need.spare_nodes,
        min_nodes=need.min_nodes or need.nodes,
        gpus_per_node=need.gpus_per_node,
        ranks_per_node=ranks,
        cpus_per_rank=cpus,
        memory_bytes=need.memory or None,
        disk_bytes=need.disk,
        time_s=need.time,
        gpu=need.gpu,
        scheduler=model.Scheduler(
            account=need.account,
            partition=placement.partition if chooses_partition(loaded.cluster) else need.partition,
            qos=placement.qos if chooses_partition(loaded.cluster) else need.qos,
            constraint=need.constraint,
            reservation=need.reservation,
            options=loaded.job.slurm.options,
            gpu_type=placement.gpu_type,
            requirements=loaded.cluster.htcondor.requirements,
            attributes={**loaded.cluster.htcondor.attributes, **placement.attributes},
            max_idle=loaded.cluster.htcondor.max_idle,
            max_materialize=loaded.cluster.htcondor.max_materialize,
            exclusive=_takes_whole_nodes(need, ranks, cpus, placement) or "--exclusive" in loaded.job.slurm.options,
        ),
    )


def tasks_of(loaded: LoadedJob, request: model.Request, command: CommandFacts, env: Mapping[str, str]) -> model.Tasks:
    """Return what runs there.

    Args:
        env: what systems set for every rank.
    """
    job = loaded.job
    return model.Tasks(
        argv=job.run,
        env={**job.env, **env},
        launch="tasks" if job.pools else job.launch,
        setup=job.setup,
        mpi=job.slurm.mpi,
        bind=_bind(loaded, request),
        untold=_untold(loaded, request, command),
        path_prepend=command.path_prepend,
    )


def segments(time_s: float | None, grace_s: float, placement: Placement, following: Requeue) -> model.SegmentPolicy:
    """Return how a job of `time_s` is cut where one job may take no more than the placement's limit.

    Every segment ends `grace_s` before its limit, half of the limit at most, so that it can save; as many follow as the
    rest of each adds up to the whole time. Without a time there is one segment of the partition's default time, else of
    its limit.
    """
    limit_s = placement.limit.seconds
    if time_s is None:
        default_s = placement.facts.default_time if placement.facts else None
        one_s = min((given for given in (default_s, limit_s) if given), default=None)
    else:
        one_s = time_s if limit_s is None else min(time_s, limit_s)
    grace = grace_s if one_s is None else min(grace_s, one_s / 2)
    count = 1
    if time_s is not None and one_s is not None and one_s < time_s:
        count = math.ceil(time_s / (one_s - grace) - 1e-9)
    return model.SegmentPolicy(limit_s=one_s, grace_s=grace, max_segments=count, next=following)


def _bind(loaded: LoadedJob, request: model.Request) -> Literal["gpu", "none"]:
    """Return whether ranks are put near their GPUs: where each has one, the agent starts them, and nothing else is said."""
    need = loaded.job.need
    if loaded.job.launch != "fork" or loaded.job.pools or not request.gpus_per_node:
        return "none"
    return need.bind or ("gpu" if request.ranks_per_node == request.gpus_per_node else "none")


def _untold(loaded: LoadedJob, request: model.Request, command: CommandFacts) -> tuple[str, ...]:
    """Return what the rank is not told where it is alone and nothing says that it is meant to be a world.

    Scripts take RANK for the word of a launcher and then ask for the backend of GPUs, which a laptop has not; a command
    that starts ranks of its own must not hand this one's number to them.
    """
    if request.nodes * request.ranks_per_node > 1 or isinstance(loaded.job.need.ranks_per_node, int):
        return ()
    if command.launches:
        return (*DISTRIBUTED, *JAX)
    return () if request.gpus_per_node else DISTRIBUTED


def _cpus_of_a_rank(need: Need, ranks_per_node: int, placement: Placement) -> int | None:
    """Return the cores of one rank: the node's cores times the share of its GPUs, divided by its ranks, at least 1.

    A job without GPUs, and one where the nodes have none, takes the cores of the whole node. None: nothing is known of
    the nodes' cores.
    """
    cores = [shape.cores * _share(need, shape) for shape in placement.shapes if shape.cores]
    return max(1, int(min(cores) / ranks_per_node + 1e-9)) if cores else None


def _takes_whole_nodes(need: Need, ranks_per_node: int, cpus_per_rank: int | None, placement: Placement) -> bool:
    """Return whether nothing of its nodes is left for other jobs: all GPUs, or all cores where it asks for no GPU."""
    known = [shape for shape in placement.shapes if shape.cores]
    if not known:
        return False
    if need.cpus_per_rank is None:
        return all(_share(need, shape) == 1 for shape in known)
    return all(ranks_per_node * (cpus_per_rank or 1) >= (shape.cores or 0) for shape in known)


def _share(need: Need, shape: NodeGroupTable) -> float:
    return min(1.0, need.gpus_per_node / shape.gpus) if need.gpus_per_node and shape.gpus else 1.0
