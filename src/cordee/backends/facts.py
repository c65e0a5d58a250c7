"""What a back end says of the newest job of a run, and of the place around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_UNUSABLE = ("down", "drain", "drng", "fail", "maint", "resv", "unk", "futr", "no_resp", "inval", "block")
GONE = "GONE"  # the place holds nothing of the run
HELD = "HELD"  # in the queue until somebody releases it
SUSPENDED = "SUSPENDED"  # it has its nodes, and its processes are stopped


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one partition that are alike; `nodes` is compressed, `gpus`, `memory_bytes` and `disk_bytes` are of one node."""

    partition: str
    state: str
    count: int
    nodes: str
    cores: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    features: tuple[str, ...] = ()
    reason: str = ""
    disk_bytes: int = 0

    @property
    def usable(self) -> bool:
        """Whether jobs can be given these nodes, now or when others end; a state with `*` does not answer."""
        return "*" not in self.state and not self.state.startswith(_UNUSABLE)

    @property
    def idle(self) -> bool:
        return self.state.startswith(("idle", "plnd", "planned")) and self.usable


@dataclass(frozen=True)
class Partition:
    """Limits of one partition; None means that there is none."""

    name: str
    state: str = "UP"
    max_time_s: float | None = None
    max_nodes: int | None = None
    default: bool = False


@dataclass(frozen=True)
class Reservation:
    """Nodes that are kept for somebody from one time to another, in epoch seconds."""

    name: str
    starts_at: float | None = None
    ends_at: float | None = None
    nodes: str = ""


@dataclass(frozen=True)
class SchedulerFacts:
    """What the scheduler says of a run's newest job; empty and None mean that it did not say.

    Attributes:
        job: the scheduler's name for it.
        state: PENDING, HELD (until somebody releases it), SUSPENDED, CONFIGURING, RUNNING, GONE (the place holds nothing of the
            run), or how it ended: COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED; empty when
            unknown. A back end whose words are others translates them, and may add its own.
        reason, detail: why it waits or how it ended, split at the first comma: `ReqNodeNotAvail`, `UnavailableNodes:n3`.
        starts_at, eligible_at: epoch seconds: the scheduler's estimate, and the earliest time that is allowed.
        exit_code, signal: of the batch script.
        time_limit_s, elapsed_s: of this job.
        cores, gpus_per_node: asked for, in all and on a node.
        memory_bytes, most_rss_bytes: asked for on a node; the largest that accounting saw of a task.
        nodes: names, compressed.
        tres: what it asks for in all, by Slurm's names (`cpu`, `mem`, `node`, `gres/gpu`), in bytes and counts.
        limits: names of limits as sacctmgr has them, with their values: of the QOS and of the association.
        accounts, qos_allowed: what the person may use.
        own_jobs: the person's jobs by state.
        priority: the parts of the job's priority.
        batch_output: last lines of the batch script's output.
        own: what has no name above, for the back end's own reasons: plain values that can be JSON.
        unknown: what could not be asked, and why.
    """

    scheduler: str = ""
    job: str | None = None
    state: str = ""
    reason: str = ""
    detail: str = ""
    submitted_at: float | None = None
    eligible_at: float | None = None
    starts_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    time_limit_s: float | None = None
    elapsed_s: float | None = None
    cores: int | None = None
    gpus_per_node: int | None = None
    memory_bytes: int | None = None
    most_rss_bytes: int | None = None
    node_count: int | None = None
    nodes: str = ""
    restarts: int | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    features: str = ""
    dependency: str = ""
    reservation: str = ""
    tres: Mapping[str, float] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    node_groups: tuple[NodeGroup, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    accounts: tuple[str, ...] = ()
    qos_allowed: tuple[str, ...] = ()
    own_jobs: Mapping[str, int] = field(default_factory=dict)
    priority: Mapping[str, float] = field(default_factory=dict)
    batch_output: tuple[str, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def groups_of(self, partition: str) -> list[NodeGroup]:
        """Return the groups of nodes of a partition."""
        return [group for group in self.node_groups if group.partition == partition]

    def limits_of(self, partition: str) -> Partition | None:
        """Return a partition's limits, None when they are not known."""
        return next((known for known in self.partitions if known.name == partition), None)
