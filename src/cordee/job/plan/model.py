"""The Plan: what plan.json holds, frozen."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """Base of the plan's parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Scheduler(Frozen):
    """What only a scheduler understands.

    `exclusive` says that the job takes all cores, or all GPUs, of its nodes: without a size given, all their memory is
    its own too. `gpu_type` is the kind of GPU to ask for where only some in the partition meet the requirement.
    `requirements` and `attributes` are the site's, for every job, and of the job's class; `max_idle` and `max_materialize` hold
    for jobs that are submitted together.
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    options: tuple[str, ...] = ()
    exclusive: bool = False
    gpu_type: str | None = None
    requirements: str | None = None
    attributes: dict[str, str | int | float | bool] = Field(default_factory=dict)
    max_idle: int | None = None
    max_materialize: int | None = None


class Request(Frozen):
    """What one step asks for; sizes in bytes, times in seconds."""

    nodes: int
    spare_nodes: int
    min_nodes: int
    gpus_per_node: int
    ranks_per_node: int
    cpus_per_rank: int | None
    memory_bytes: int | None
    time_s: float | None
    gpu: str | None
    scheduler: Scheduler
    disk_bytes: int | None = None


class Tasks(Frozen):
    """What one step runs.

    `path_prepend` goes in front of PATH, `mpi` is srun's (None: what the site set); `bind` is `gpu` where the agent puts
    each rank on CPUs near its GPU. `untold` are the variables of the world that
    the only rank of a job is not given, so that its command finds itself as if started by hand. With launch `tasks` each
    node's only rank is a pool of tasks.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    path_prepend: tuple[str, ...]
    launch: Literal["fork", "srun", "tasks"]
    setup: tuple[str, ...]
    mpi: str | None = None
    bind: Literal["gpu", "none"] = "none"
    untold: tuple[str, ...] = ()


class VetPolicy(Frozen):
    """What is looked at on every node before the ranks; `protocol` is a resolved one (`cordee.protocol/1`)."""

    commands: tuple[str, ...]
    modules: tuple[str, ...]
    min_memory_bytes: int
    min_disk_bytes: int
    max_load_ratio: float | None
    deadline_s: float
    protocol: dict[str, Any] | None = None


class BeginFrom(Frozen):
    """What the run was told to begin from: `given` is how, `checkpoints` path to mtime in ns, the newest last."""

    given: str
    checkpoints: dict[str, int]


class CheckpointPolicy(Frozen):
    """Where complete checkpoints lie; `ignore` are those that were there before (name to mtime in ns).

    `own_folder`: `path` is the run's own, and all in it is. `resume` is `self` where the script finds its newest one.
    `begin` is None where the run begins from nothing but its own. `node_places` are paths of the profile's storage on each
    node's own disks; `purge_s` is the age at which files are removed from where `path` is. `seen_as` is the path in the job's
    folder by which the script of a run that travels knows its checkpoints.
    """

    path: str
    pattern: str
    resume: tuple[str, ...] | Literal["self"] | None
    signal: str | None
    every_s: float | None
    grace_s: float
    ignore: dict[str, int]
    declared: bool
    own_folder: bool = False
    begin: BeginFrom | None = None
    asynchronous: bool = False
    pace: str = "auto"
    keep: int = 3
    milestones: int | None = None
    tiers: tuple[str, ...] = ("shared",)
    node_places: tuple[str, ...] = ()
    purge_s: float | None = None
    seen_as: str | None = None


class RestartPolicy(Frozen):
    """Restarts without progress, and the pause between them."""

    retries: int
    backoff_s: float
    forget_s: float | None = None


class SegmentPolicy(Frozen):
    """How long one segment may take, how many there may be, and how the next one is had.

    `next` is requeue (the same job goes back into the queue), resubmit (a new job), or forbidden (the run ends).
    """

    limit_s: float | None
    grace_s: float
    max_segments: int
    next: Literal["requeue", "resubmit", "forbidden"] = "requeue"


class EnvironmentPlan(Frozen):
    """What the ranks run in: an engine by name, and a canonical document (`cordee.environment/1`) whose root is known.

    `files` are the EDFs that it came from, the job's own last. `option` is for the engine `step` alone: what srun is given
    when it starts the agents, which are inside then, in words as a shell has them.
    """

    engine: str
    document: dict[str, Any]
    files: tuple[str, ...]
    option: str | None = None


class DataStaging(Frozen):
    """How a data set is brought to the nodes: `tiers` are paths of the profile's storage on each node's own disks, `prepare` is
    run there once; with `part` each of n nodes gets every n-th file."""

    tiers: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    part: bool = False


class DataSet(Frozen):
    """A data set of the job as it was found; what was not known at the time is None.

    `place` is an absolute path or an address, in `variable` of every rank; `shared` its name in the site's catalogue, with
    `licence` and `group`; `kind`, `samples`, `bytes` and `identity` as a bounded look saw them, and `whole` says whether that
    was all. It is brought to the nodes where `stage` is set. `tier`, its `bandwidth_bytes_per_s` and what one node gets of it are those of the profile's `[storage]`.
    """

    name: str
    given: str
    place: str
    variable: str
    to: Literal["auto", "memory", "node", "shared"]
    kind: str
    files: int | None = None
    bytes: int | None = None
    whole: bool = False
    samples: int | None = None
    identity: str | None = None
    shared: str | None = None
    licence: str | None = None
    group: str | None = None
    tier: str | None = None
    bandwidth_bytes_per_s: int | None = None
    node_bandwidth_bytes_per_s: int | None = None
    stage: DataStaging | None = None


class Step(Frozen):
    """A request, tasks and a segment policy; `environment` is None where ranks run on the host as it is.

    `systems` are the parts of systems that have no field of their own here, by their names.
    """

    name: str
    request: Request
    tasks: Tasks
    vet: VetPolicy
    checkpoint: CheckpointPolicy
    restart: RestartPolicy
    segment: SegmentPolicy
    environment: EnvironmentPlan | None = None
    data: tuple[DataSet, ...] = ()
    systems: dict[str, Any] = Field(default_factory=dict)


class Timeouts(Frozen):
    """Patience of the control plane, in seconds; `lease_s`: for how long ranks run on without a supervisor."""

    connect_s: float
    heartbeat_s: float
    lost_s: float
    orphan_s: float
    kill_s: float
    lease_s: float


class Sampling(Frozen):
    """Seconds between two samples; `gpus` is `auto`, `none`, or the source that measures them.

    `threads`: whether each thread is looked at, too; None: where samples are at least 1 s apart. `hardware`: whether faults of
    the nodes become findings of the run. `keep_s`: samples that are older are thinned; None: none are.
    """

    interval_s: float
    gpus: str = "auto"
    threads: bool | None = None
    hardware: bool = True
    keep_s: float | None = None


class Scrape(Frozen):
    """A Prometheus endpoint that is read; in `url`, {rank}, {local_rank} and {port}, `port` + the local rank, are filled in.

    `per`: once on every node, or once for every rank; `metrics`: patterns of the names that are kept, none: all.
    """

    url: str
    port: int | None
    every_s: float
    per: Literal["node", "rank"]
    metrics: tuple[str, ...]


class Metrics(Frozen):
    """What is recorded of a training beside its own `cordee.log`: libraries and endpoints."""

    adapters: tuple[str, ...] = ()
    scrape: tuple[Scrape, ...] = ()


class GpuFigures(Frozen):
    """What the site says that one GPU of a model can do: `peak_flops` dense in bf16, bytes per second of its memory."""

    memory_bytes: int
    capability: float | None = None
    peak_flops: float | None = None
    peak_bytes_per_second: float | None = None
    power_watts: float | None = None


class Plan(Frozen):
    """Everything that will happen, decided before anything is submitted.

    `python` is the interpreter of the node side on compute nodes (None: this one); `network_interface` is where the
    supervisor listens and ranks meet (None: where the node's own name leads); `network_trusted` is the profile's word that
    nobody else reads there, and `release_held` that a job held after a failed launch may be released. `gpu_models` are those of the profile, by its names. `node_parts` are the `module:object` that
    fill the ports of the node side, by the port; `backend_part` is where a back end of others lies, as `module:object`: nodes load it from node.zip.
    `parent` is the folder of the run that this one is a child of. `logs_keep_bytes`: of what each node prints in a segment, so many of the last
    bytes stay (None: all).
    """

    schema_: Literal["cordee.plan/1"] = "cordee.plan/1"
    run: str
    name: str
    backend: str
    cluster: str
    job_folder: str
    workdir: str
    folder: str
    code_digest: str
    steps: tuple[Step, ...]
    timeouts: Timeouts
    sampling: Sampling
    metrics: Metrics = Metrics.model_construct()
    python: str | None = None
    network_interface: str | None = None
    network_trusted: bool = False
    release_held: bool = True
    gpu_models: dict[str, GpuFigures] = Field(default_factory=dict)
    node_parts: dict[str, str] = Field(default_factory=dict)
    backend_part: str | None = None
    parent: str | None = None
    logs_keep_bytes: int | None = None

    @property
    def step(self) -> Step:
        """The only step there is for now."""
        return self.steps[0]

    def document(self) -> dict[str, object]:
        """Return the plan as plan.json has it."""
        seldom = ("gpu_models", "backend_part", "parent", "logs_keep_bytes")
        unsaid = {name for name in seldom if not getattr(self, name)} | (
            {"release_held"} if self.release_held else set()
        )
        document = self.model_dump(mode="json", exclude=unsaid)
        return {"schema": document.pop("schema_"), **document}
