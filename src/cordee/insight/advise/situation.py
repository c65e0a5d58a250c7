"""What advice is given from: a run's state, its plan, what the scheduler says, the last words, memory and disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cordee.runs.state import RunState
from cordee.slurm import ENDED_STATES, WAITING_STATES

Where = Literal["waiting", "starting", "running", "finished", "failed", "cancelled"]

_UNUSABLE = ("down", "drain", "drng", "fail", "maint", "resv", "unk", "futr", "no_resp", "inval", "block")
STARTING_STATES = frozenset(["CONFIGURING", "POWER_UP_NODE"])
GONE = "GONE"  # the place holds nothing of the run


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one partition that are alike; `nodes` is compressed, `gpus` and `memory_bytes` are of one node."""

    partition: str
    state: str
    count: int
    nodes: str
    cores: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    features: tuple[str, ...] = ()
    reason: str = ""

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
        state: Slurm's job state in full (`PENDING`), `RUNNING` or `GONE` on one machine, empty when unknown.
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
    unknown: tuple[str, ...] = ()

    def groups_of(self, partition: str) -> list[NodeGroup]:
        """Return the groups of nodes of a partition."""
        return [group for group in self.node_groups if group.partition == partition]

    def limits_of(self, partition: str) -> Partition | None:
        """Return a partition's limits, None when they are not known."""
        return next((known for known in self.partitions if known.name == partition), None)


@dataclass(frozen=True)
class MemoryFacts:
    """Memory of the node that used most of it, in bytes; None where nothing was measured.

    `killed_for_memory` are the pids that the log of this machine's kernel says it ended for memory, None where it may
    not be read.
    """

    peak_bytes: float | None = None
    limit_bytes: float | None = None
    killed_for_memory: tuple[int, ...] | None = None

    @property
    def share(self) -> float | None:
        """The peak's part (0-1) of the limit."""
        return self.peak_bytes / self.limit_bytes if self.peak_bytes and self.limit_bytes else None


@dataclass(frozen=True)
class DiskFacts:
    """A file system that the run writes to, as it is now; `files_free` is None where files are not counted."""

    what: str
    path: str
    free_bytes: int
    total_bytes: int
    files_free: int | None = None
    writable: bool = True


@dataclass(frozen=True)
class Situation:
    """Everything that a rule may look at.

    Attributes:
        state: the replay of the journal.
        plan: plan.json, empty when it cannot be read.
        output: last lines of the rank that failed first, or of the set-up lines.
        own_output: last lines of the supervisor's own log, as long as the run has not ended.
        now: epoch seconds.
        silent_s: seconds since the last sign of life in the journal.
    """

    run: str
    state: RunState
    plan: dict[str, Any]
    scheduler: SchedulerFacts = SchedulerFacts()
    output: tuple[str, ...] = ()
    own_output: tuple[str, ...] = ()
    memory: MemoryFacts = MemoryFacts()
    disks: tuple[DiskFacts, ...] = ()
    now: float = 0.0
    silent_s: float = 0.0
    unknown: tuple[str, ...] = ()

    @property
    def step(self) -> dict[str, Any]:
        """The plan's only step, empty when the plan cannot be read."""
        steps = self.plan.get("steps")
        return steps[0] if isinstance(steps, list) and steps and isinstance(steps[0], dict) else {}

    def part(self, name: str) -> dict[str, Any]:
        """Return a table of the step: request, tasks, checkpoint, segment; empty when it is not there."""
        found = self.step.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def nodes_asked(self) -> int:
        """How many nodes the job asks for, spares too."""
        asked = self.scheduler.node_count
        return asked or int(self.part("request").get("nodes", 1)) + int(self.part("request").get("spare_nodes", 0))

    @property
    def where(self) -> Where:
        """Where the run is: the journal's word for its end, else the scheduler's word for its job."""
        job = self.scheduler.state
        if self.state.state in ("finished", "failed", "cancelled"):
            return self.state.state  # type: ignore[return-value]
        if job in STARTING_STATES:
            return "starting"
        if job in WAITING_STATES or job == "RESV_DEL_HOLD":
            return "waiting"
        if job == "CANCELLED":
            return "cancelled"
        if job in ENDED_STATES or job == GONE:
            return "failed"
        if self.state.state == "running":
            return "running"
        return "starting" if job else "waiting"
