"""Where on a Slurm cluster a job goes: its partition, quality of service and job class, and how long it may stay there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cordee.core.backends import abilities
from cordee.job.document import Need
from cordee.job.plan.requirement import meets
from cordee.job.profile import Account, ClusterProfile, JobClass, NodeGroupTable, PartitionTable, Qos


@dataclass(frozen=True)
class TimeLimit:
    """The longest that one job may take, in seconds, and whose limit that is (`partition normal`); None: endless."""

    seconds: float | None = None
    owner: str = ""


@dataclass(frozen=True)
class Placement:
    """Where a job goes.

    Attributes:
        partition, qos: names to ask for; None leaves it to Slurm.
        job_class: the class they were taken from.
        facts: what is known of the partition.
        account: what is known of the account, the person's default one when none is given.
        limit: of one job.
        shapes: the kinds of nodes in the partition that can hold one node's share, the smallest first; all kinds when
            none can.
        gpu_type: the kind of GPU to ask for, None when any in the partition will do.
        attributes: of jobs of the class.
    """

    partition: str | None = None
    qos: str | None = None
    job_class: str | None = None
    facts: PartitionTable | None = None
    account: Account | None = None
    limit: TimeLimit = TimeLimit()
    shapes: tuple[NodeGroupTable, ...] = ()
    gpu_type: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


def place(need: Need, cluster: ClusterProfile) -> Placement:
    """Return where a job goes: the partition and QOS given, else those of the shortest class that holds it, else the
    default partition."""
    if not chooses_partition(cluster):
        return _of_class(need, cluster)
    name, chosen = _choose_class(need, cluster)
    partition = need.partition or (chosen.partition if chosen else None) or default_partition(cluster)
    qos = need.qos or (chosen.qos if chosen else None)
    facts = cluster.partitions.get(partition) if partition else None
    return Placement(
        partition=partition,
        qos=qos,
        job_class=name,
        facts=facts,
        account=account_of(need, cluster),
        limit=limit_of(need, cluster, partition, qos, name),
        shapes=_shapes(need, cluster, facts),
        gpu_type=_gpu_type(need, cluster, facts),
    )


def _of_class(need: Need, cluster: ClusterProfile) -> Placement:
    """Return where a job goes in a queue without partitions, in which its class says how long it may take."""
    name, chosen = _choose_class(need, cluster) if abilities(cluster.scheduler).queues else (None, None)
    if chosen is None:
        return Placement()
    limit = TimeLimit(chosen.max_time, f"class {name}")
    return Placement(job_class=name, limit=limit, attributes=chosen.attributes)


def chooses_partition(cluster: ClusterProfile) -> bool:
    """Return whether the cluster's scheduler has partitions, so that a job that names none gets one from the profile."""
    return "need.partition" in abilities(cluster.scheduler).honours


def default_partition(cluster: ClusterProfile) -> str | None:
    """Return the partition of a job that names none: the default one, or the only one; None when that is not known."""
    names = [name for name, partition in cluster.partitions.items() if partition.default]
    return names[0] if names else next(iter(cluster.partitions)) if len(cluster.partitions) == 1 else None


def account_name(need: Need, cluster: ClusterProfile) -> str | None:
    """Return the account of a job: the one given, else the person's default one; None when that is not known."""
    accounts = cluster.accounts or {}
    return need.account or next((name for name, account in accounts.items() if account.default), None)


def account_of(need: Need, cluster: ClusterProfile) -> Account | None:
    """Return what is known of the account of a job."""
    return (cluster.accounts or {}).get(account_name(need, cluster) or "")


def job_qos(need: Need, cluster: ClusterProfile, partition: str | None, qos: str | None) -> list[tuple[str, Qos]]:
    """Return (name, limits) of the QOS that hold for a job, the one that goes first in front: the partition's, then its
    own or its account's default."""
    known = cluster.qos or {}
    facts = cluster.partitions.get(partition) if partition else None
    account = account_of(need, cluster)
    names = [facts.qos if facts else None, qos or (account.default_qos if account else None)]
    return [(name, known[name]) for name in names if name in known]


def limit_of(
    need: Need, cluster: ClusterProfile, partition: str | None, qos: str | None, job_class: str | None = None
) -> TimeLimit:
    """Return the longest that one job may take there. A QOS goes before the account, as Slurm has it; the shortest of
    that, the partition and the class holds."""
    limits: list[TimeLimit] = []
    of_job = job_qos(need, cluster, partition, qos)
    account = account_of(need, cluster)
    walls = [TimeLimit(limits_.max_time, f"QOS {name}") for name, limits_ in of_job]
    walls.append(TimeLimit(account.max_time if account else None, f"account {account_name(need, cluster)}"))
    limits += [limit for limit in walls if limit.seconds][:1]
    facts = cluster.partitions.get(partition) if partition else None
    if facts is not None and facts.max_time and not any(limits_.over_partition for _, limits_ in of_job):
        limits.append(TimeLimit(facts.max_time, f"partition {partition}"))
    if job_class is not None:
        limits.append(TimeLimit(cluster.classes[job_class].max_time, f"class {job_class}"))
    return min(limits, key=lambda limit: limit.seconds or 0, default=TimeLimit())


def _choose_class(need: Need, cluster: ClusterProfile) -> tuple[str | None, JobClass | None]:
    """Return the class that holds the time, the shortest of them; the longest when none does."""
    if need.partition or need.qos or need.time is None:
        return None, None
    usable = [(name, entry) for name, entry in cluster.classes.items() if _usable(need, cluster, entry)]
    usable = [(name, entry) for name, entry in usable if _fits(need, cluster, entry)] or usable
    if not usable:
        return None, None

    def longest(name: str, entry: JobClass) -> float:
        partition = entry.partition or default_partition(cluster)
        return limit_of(need, cluster, partition, entry.qos, name).seconds or entry.max_time

    lengths = sorted(((longest(name, entry), name, entry) for name, entry in usable), key=lambda item: item[0])
    _, name, entry = next((item for item in lengths if item[0] >= need.time), lengths[-1])
    return name, entry


def _usable(need: Need, cluster: ClusterProfile, entry: JobClass) -> bool:
    """Return whether this person may use a class, as far as that is known."""
    if entry.partition and cluster.partitions and entry.partition not in cluster.partitions:
        return False
    account = account_of(need, cluster)
    return not (entry.qos and account and account.qos and entry.qos not in account.qos)


def _fits(need: Need, cluster: ClusterProfile, entry: JobClass) -> bool:
    """Return whether the nodes of a class can hold one node's share of a job, as far as that is known."""
    facts = cluster.partitions.get(entry.partition or default_partition(cluster) or "")
    return facts is None or any(holds(shape, need, cluster) for shape in facts.shapes)


def _shapes(need: Need, cluster: ClusterProfile, facts: PartitionTable | None) -> tuple[NodeGroupTable, ...]:
    shapes = facts.shapes if facts else ()
    return tuple(shape for shape in shapes if holds(shape, need, cluster)) or shapes


def _gpu_type(need: Need, cluster: ClusterProfile, facts: PartitionTable | None) -> str | None:
    """Return the model that most nodes have of those that meet the requirement, when others do not meet it."""
    shapes = [shape for shape in (facts.shapes if facts else ()) if shape.gpus and shape.gpu_model]
    able = [shape for shape in shapes if holds(shape, need, cluster)]
    if not need.gpus_per_node or not need.gpu or len({shape.gpu_model for shape in shapes}) < 2 or not able:
        return None
    if {shape.gpu_model for shape in able} == {shape.gpu_model for shape in shapes}:
        return None
    return max(able, key=lambda shape: shape.nodes or 0).gpu_model


def holds(shape: NodeGroupTable, need: Need, cluster: ClusterProfile) -> bool:
    """Return whether nodes of this kind can hold one node's share of a job; what is not known of them may be enough."""
    enough = (
        shape.gpus is None or shape.gpus >= need.gpus_per_node,
        shape.memory is None or shape.memory >= (need.memory or 0),
        not need.gpus_per_node or meets(need.gpu, shape.gpu_model, cluster.gpu_models) is not False,
        has_features(shape, need.constraint),
    )
    return all(enough)


def has_features(shape: NodeGroupTable, constraint: str | None) -> bool:
    """Return whether nodes have the features of a constraint; one that is more than names joined by `&` is not judged."""
    names = plain_features(constraint)
    return names is None or shape.features is None or all(name in shape.features for name in names)


def plain_features(constraint: str | None) -> list[str] | None:
    """Return the names in a constraint such as `a100&nvme`, None for anything else."""
    if constraint is None or any(letter in constraint for letter in "|[]()*,!:"):
        return None
    return [name.strip() for name in constraint.split("&") if name.strip()]
