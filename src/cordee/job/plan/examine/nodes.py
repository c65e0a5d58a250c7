"""Whether the nodes of a Slurm partition can hold what is asked for, and the nearest that they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.core.words import counted
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan, Request
from cordee.job.plan.placement import Placement, account_name, has_features, holds, job_qos
from cordee.job.plan.requirement import describe, meets
from cordee.job.profile import NodeGroupTable, PartitionTable


def examine_nodes(loaded: LoadedJob, plan: Plan, placement: Placement) -> list[Finding]:
    """Return an error for what no node, or not enough nodes, can give, and a warning for nodes that are down."""
    saying, request = JobFindings(loaded), plan.step.request
    _limits(saying, loaded, request, placement)
    facts = placement.facts
    if facts is None:
        return saying.findings
    partition = f"partition {placement.partition}"
    others = _Others(loaded, placement)
    _gpus(saying, loaded, request, facts, partition, others)
    _memory(saying, request, facts, partition, others)
    _cores(saying, loaded, request, placement, partition, others)
    _features(saying, request, facts, partition, others)
    if not any(finding.severity == "error" for finding in saying.findings):
        _nodes(saying, loaded, request, facts, partition, others)
    return saying.findings


class _Others:
    """The other partitions of the cluster, to be named where one of them can do what this one cannot."""

    def __init__(self, loaded: LoadedJob, placement: Placement) -> None:
        need, cluster = loaded.job.need, loaded.cluster
        nodes = need.nodes + need.spare_nodes
        self._able = {
            name: [shape for shape in facts.shapes if holds(shape, need, cluster)]
            for name, facts in cluster.partitions.items()
            if name != placement.partition and facts.state == "up" and nodes <= (facts.max_nodes or nodes)
        }

    def hint(self, fits: Callable[[list[NodeGroupTable]], bool], otherwise: str) -> str:
        """Return what to do: another partition that fits, else `otherwise`."""
        names = [name for name, shapes in self._able.items() if shapes and fits(shapes)]
        return f'{otherwise}, or partition = "{names[0]}"' if names else otherwise


def _limits(saying: JobFindings, loaded: LoadedJob, request: Request, placement: Placement) -> None:
    """Refuse what the QOS, the account or the partition does not allow one job to have."""
    need, cluster = loaded.job.need, loaded.cluster
    of_person: list[tuple[str, Any]] = [
        (f"QOS {name}", limits) for name, limits in job_qos(need, cluster, placement.partition, placement.qos)
    ]
    of_person.append((f"account {account_name(need, cluster)}", placement.account))
    of_partition = [(f"partition {placement.partition}", placement.facts)]
    nodes = request.nodes + request.spare_nodes
    asked = {
        "max_nodes": (nodes, "node", "nodes", nodes),
        "max_gpus": (nodes * request.gpus_per_node, "GPU", "gpus_per_node", request.gpus_per_node),
        "max_cpus": (nodes * request.ranks_per_node * (request.cpus_per_rank or 1), "core", "cpus_per_rank", None),
    }
    for limit, (count, noun, key, given) in asked.items():
        found = [_first(limit, holders) for holders in (of_person, of_partition)]
        most, name = min((each for each in found if each is not None), default=(count, ""))
        if count > most:
            spare = " with the spares" if noun == "node" and request.spare_nodes else ""
            saying.error(
                f"need.{key}",
                "over-limit",
                f"the job asks for {counted(count, noun)}{spare}, and {name} allows one job {most}",
                given=given or count,
                allowed=f"at most {counted(most, noun)} in one job",
                next="ask for fewer, or choose another partition or QOS",
            )


def _first(limit: str, holders: list[tuple[str, Any]]) -> tuple[int, str] | None:
    """Return (limit, whose it is) of the first that has one: it goes before the others."""
    found = [(getattr(holder, limit, None), name) for name, holder in holders]
    return next(((most, name) for most, name in found if most is not None), None)


def _gpus(
    saying: JobFindings, loaded: LoadedJob, request: Request, facts: PartitionTable, partition: str, others: _Others
) -> None:
    asked, known = request.gpus_per_node, loaded.cluster.gpu_models
    most = _most([shape.gpus for shape in facts.shapes])
    if most is not None and asked > most:
        total = asked * request.nodes
        instead = f"gpus_per_node = {most} with nodes = {-(-total // most)}" if most else "gpus_per_node = 0"
        saying.error(
            "need.gpus_per_node",
            "no-gpus",
            f"{partition} has no node with {asked} GPUs" if most else f"{partition} has no GPUs",
            given=asked,
            allowed=f"at most {most} per node",
            next=others.hint(lambda shapes: any((shape.gpus or 0) >= asked for shape in shapes), instead),
        )
        return
    models = {shape.gpu_model for shape in facts.shapes if shape.gpus is None or shape.gpus >= max(1, asked)}
    if not asked or not request.gpu or not models:
        return
    answers = {model: meets(request.gpu, model, known) for model in models}
    named = sorted(model for model in models if model)
    if not any(answer is not False for answer in answers.values()):
        saying.error(
            "need.gpu",
            "gpu-requirement",
            f"no GPU in {partition} meets {request.gpu}",
            given=request.gpu,
            allowed=[describe(model, known) for model in named],
            next=others.hint(lambda shapes: any(shape.gpus for shape in shapes), "ask for less"),
        )
    elif True not in answers.values():
        saying.warn(
            "need.gpu",
            "gpu-unknown",
            f"whether the GPUs in {partition} meet {request.gpu} is not known",
            given=request.gpu,
            allowed=[describe(model, known) for model in named] or "a profile that names the model of the GPUs",
            next=f"say it in the cluster's profile: [gpu.{named[0] if named else 'MODEL'}] memory and capability",
        )


def _memory(saying: JobFindings, request: Request, facts: PartitionTable, partition: str, others: _Others) -> None:
    able = [shape for shape in facts.shapes if shape.gpus is None or shape.gpus >= request.gpus_per_node]
    most, asked = _most([shape.memory for shape in able]), request.memory_bytes
    if most is None or asked is None or asked <= most:
        return
    saying.error(
        "need.memory",
        "no-memory",
        f"{partition} has no node with {format_size(asked)} of memory for jobs",
        given=asked,
        allowed=f"at most {format_size(most)} per node",
        next=others.hint(lambda shapes: bool(shapes), f'memory = "{most >> 20}MiB"'),
    )


def _cores(
    saying: JobFindings, loaded: LoadedJob, request: Request, placement: Placement, partition: str, others: _Others
) -> None:
    most = _most([shape.cores for shape in placement.shapes])
    if request.cpus_per_rank is None:
        saying.warn(
            "need.cpus_per_rank",
            "unknown-cores",
            f"how many cores a node of {partition} has is not known: each rank gets one",
            allowed="a whole number from 1",
            next="give [need] cpus_per_rank, or cores in the cluster's profile",
        )
        return
    asked = request.ranks_per_node * request.cpus_per_rank
    if most is None or asked <= most:
        return
    key = "cpus_per_rank" if loaded.job.need.cpus_per_rank else "ranks_per_node"
    fitting = max(1, most // request.ranks_per_node) if key == "cpus_per_rank" else most
    saying.error(
        f"need.{key}",
        "no-cores",
        f"the ranks of one node ask for {asked} cores, and a node of {partition} has {most}",
        given=request.cpus_per_rank if key == "cpus_per_rank" else request.ranks_per_node,
        allowed=f"at most {most} cores per node",
        next=others.hint(lambda shapes: any((shape.cores or 0) >= asked for shape in shapes), f"{key} = {fitting}"),
    )


def _features(saying: JobFindings, request: Request, facts: PartitionTable, partition: str, others: _Others) -> None:
    constraint = request.scheduler.constraint
    if constraint is None or any(has_features(shape, constraint) for shape in facts.shapes):
        return
    known = sorted({name for shape in facts.shapes for name in shape.features or ()})
    saying.error(
        "need.constraint",
        "unknown-feature",
        f"no node in {partition} has {constraint}",
        given=constraint,
        allowed=known or "none: its nodes have no features",
        next=others.hint(
            lambda shapes: bool(shapes), "name a feature that nodes have" if known else "remove constraint"
        ),
    )


def _nodes(
    saying: JobFindings, loaded: LoadedJob, request: Request, facts: PartitionTable, partition: str, others: _Others
) -> None:
    """Compare the number of nodes with those that can hold one node's share."""
    need, cluster = loaded.job.need, loaded.cluster
    able = [shape for shape in facts.shapes if holds(shape, need, cluster)]
    total, up = _sum([shape.nodes for shape in able]), _sum([shape.up for shape in able])
    asked = request.nodes + request.spare_nodes
    kind = "node" if len(able) == len(facts.shapes) else "such node"
    if total is not None and asked > total:
        spares = request.spare_nodes and request.nodes <= total
        fewer = f"spare_nodes = {total - request.nodes}" if spares else f"nodes = {max(1, total - request.spare_nodes)}"
        saying.error(
            "need.spare_nodes" if spares else "need.nodes",
            "too-many-nodes",
            f"the job asks for {counted(asked, 'node')}{' with the spares' if request.spare_nodes else ''}, and {partition} "
            f"has {counted(total, kind)}",
            given=request.spare_nodes if spares else request.nodes,
            allowed=f"at most {total}{' with the spares' if request.spare_nodes else ''}",
            next=others.hint(lambda shapes: (_sum([shape.nodes for shape in shapes]) or 0) >= asked, fewer),
        )
    elif total is not None and up is not None and asked > up:
        saying.warn(
            "need.nodes",
            "nodes-down",
            f"{up} of {counted(total, kind)} in {partition} are up: the job waits until {asked} are",
            given=asked,
            allowed=f"at most {up} now",
            next=others.hint(
                lambda shapes: (_sum([shape.up for shape in shapes]) or 0) >= asked, "ask for fewer, or wait"
            ),
        )


def _most(values: Sequence[int | None]) -> int | None:
    """Return the largest; None where one is not known."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
