"""The job document: cordee.toml."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from cordee.core.documents.fields import (
    Argv,
    Count,
    CountOrZero,
    Document,
    Duration,
    GpuRequirement,
    Lines,
    Modules,
    MpiType,
    Name,
    SignalName,
    Size,
    VariableText,
    wrong,
)
from cordee.core.units import BANDWIDTH_FORMS, parse_bandwidth, parse_size
from cordee.job.egress import EgressTable
from cordee.job.metrics import MetricsTable
from cordee.job.plan_table import PlanTable
from cordee.job.trials import FarmTable, RetriesTable, listed, parameters_of


def _ranks(value: Any) -> Any:
    if value == "gpu" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000):
        return value
    raise wrong("is not a number of ranks", '"gpu" (one for each GPU), or a whole number from 1')


def _pace(value: Any) -> str:
    if value in ("auto", "off"):
        return str(value)
    try:
        per_s = parse_bandwidth(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else 0.0
    except ValueError:
        per_s = 0.0
    if per_s <= 0:
        raise wrong("is no pace", f'"auto", "off", or what a rank writes in a second: {BANDWIDTH_FORMS}')
    return str(per_s)


# What `memory = "auto"` is until it is known what earlier runs of the job have needed: before anything is planned.
AUTO_MEMORY = 0


# Less is a number without its unit.
_LEAST_MEMORY = 1 << 20


def _size_or_auto(value: Any) -> Any:
    if value == "auto":
        return AUTO_MEMORY
    try:
        size = parse_size(value)
    except (ValueError, TypeError):
        return value
    if size < _LEAST_MEMORY:
        raise wrong(f"is no memory of a node: {size} bytes", 'with its unit, as "64 GB", or "auto"')
    return value


class Need(Document):
    """`[need]`: what the job asks for."""

    nodes: Count = 1
    """Nodes that ranks start on."""
    spare_nodes: CountOrZero = 0
    """Nodes that are asked for on top, so that one can be left out."""
    min_nodes: Count | None = None
    """The fewest nodes that the world may shrink to; without it, `nodes`."""
    gpus_per_node: CountOrZero = 0
    """GPUs of each node."""
    ranks_per_node: Annotated[int | str, BeforeValidator(_ranks)] = "gpu"
    """Ranks of each node; `gpu` is one for each GPU, and one where there are none."""
    cpus_per_rank: Count | None = None
    """Cores of each rank; without it, its share of the node's cores."""
    bind: Literal["gpu", "none"] | None = None
    """`gpu` puts each rank on the cores near its GPU, which is what happens where each rank has one GPU."""
    memory: Annotated[Size, BeforeValidator(_size_or_auto)] | None = None
    """Memory of each node."""
    disk: Size | None = None
    """Disk of each node for the job's own files, where the scheduler gives each job its share."""
    gpu: GpuRequirement | None = None
    """What each GPU must be, such as `memory >= 24GB, capability >= 8.0`."""
    time: Duration | None = None
    """How long the job takes; more than one job may take on a cluster becomes a chain."""
    account: str | None = None
    """What the job's hours are charged to."""
    partition: str | None = None
    """The partition to run in; without it, the site's class for the time, else the default."""
    qos: str | None = None
    """The quality of service to ask for."""
    constraint: str | None = None
    """Features of nodes that are asked for, as the scheduler writes them."""
    reservation: str | None = None
    """The reservation to run in."""

    @field_validator("time")
    @classmethod
    def _some_time(cls, value: float | None) -> float | None:
        if value is not None and value < 1:
            raise wrong("is no time to run in", "at least 1 s")
        return value

    @model_validator(mode="after")
    def _no_more_than_asked_for(self) -> Need:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            text = f"min_nodes = {self.min_nodes} is more than nodes = {self.nodes}"
            raise wrong(text, f"min_nodes from 1 to {self.nodes}")
        return self


class VetTable(Document):
    """`[vet]`: what is looked at on every node before the ranks start."""

    protocol: Annotated[str, Field(min_length=1)] | None = None
    """A protocol beside the job, or the name of a built-in one, by which each node is vetted."""
    history: bool | str | None = None
    """Where results of vetting are kept: true for what the profile says, a folder, or the URL of a collector."""
    commands: Lines = ()
    """Commands that must be on the ranks' PATH."""
    modules: Modules = ()
    """Modules that the ranks' Python must be able to import."""
    min_memory: Size = 256 << 20
    """The least free memory of a node."""
    min_disk: Size = 256 << 20
    """The least free space on a node's disk."""
    max_load: Annotated[float, Field(gt=0)] | None = None
    """The most runnable processes per core."""
    deadline: Annotated[Duration, Field(gt=0)] = 30.0
    """How long all checks of a node together may take."""


class Data(Document):
    """`[data.NAME]`: a data set, which ranks find by CORDEE_DATA_<NAME>."""

    source: str = Field(alias="from")
    """A folder, a file, an archive, packed data, an `s3://` address, or the name of a shared data set of the cluster."""
    to: Literal["auto", "memory", "node", "shared"] = "shared"
    """Where it is read: brought to each node's `memory` or disk (`node`), to what fits of these (`auto`), or in place (`shared`)."""
    prepare: Argv | None = None
    """A command that is run once on each node, in the folder that was brought there, before ranks see it."""
    part: Literal["all", "node"] = "all"
    """What is brought to a node: all of it, or (`node`) every n-th file, for scripts that read what lies on their node."""

    @field_validator("source")
    @classmethod
    def _source_is_a_place(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise wrong("is no place of a data set", "a path, an s3:// address, or a shared data set's name")
        return value


SELF, FRESH, EXISTING = "self", "fresh", "existing"


class CheckpointTable(Document):
    """`[checkpoint]`: where complete checkpoints lie, and how a restart continues from one."""

    path: str | None = None
    """The folder of checkpoints; without it, a folder of the run's own."""
    pattern: str = "step-*"
    """What a complete checkpoint is called, with wildcards."""
    resume: Argv | None = None
    """Arguments that are added on a restart, with `{checkpoint}` in them; `self`: the script finds its newest one."""
    begin: str | None = None
    """What the run may begin from besides its own: `fresh` is nothing, `existing` what lies in `path`, else a path."""
    signal: SignalName | None = None
    """The signal that asks the script to save, where it handles it."""
    every: Annotated[Duration, Field(gt=0)] | None = None
    """How often `cordee.checkpointer` saves."""
    asynchronous: bool = False
    """Whether what `cordee.checkpointer` has copied is written beside the training, by a process of its own."""
    pace: Annotated[str, BeforeValidator(_pace)] = "auto"
    """How fast each rank's is then written: `auto` goes by the steps and the next save, `off` as fast as it can."""
    keep: Annotated[int, Field(ge=1)] = 3
    """How many checkpoints of `cordee.checkpointer` stay: those that were saved last."""
    milestones: Annotated[int, Field(ge=1)] | None = None
    """The first checkpoint of every so many steps stays, too."""
    tiers: Lines = ("shared",)
    """Where a save lies first: in the memory or on a disk of its node, and a copy on another; then `shared`, then an object store."""
    grace: Duration = 120.0
    """How long ranks may go on saving after they were asked to stop."""

    @field_validator("path")
    @classmethod
    def _path_is_one(cls, value: str | None) -> str | None:
        if value is not None and (not value or "\0" in value):
            raise wrong("is not a path", 'a folder, such as "checkpoints"; a relative one is below the job\'s folder')
        return value

    @field_validator("tiers")
    @classmethod
    def _tiers_end_shared(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        stores = value[2:]
        in_order = value == ("shared",) or value[:2] in (("memory", "shared"), ("node", "shared"))
        if not in_order or len(stores) > 1 or not all(one.startswith("s3://") and one[5:].strip("/") for one in stores):
            allowed = (
                '["shared"], ["memory", "shared"] or ["node", "shared"], and "s3://bucket/prefix" behind two of these'
            )
            raise wrong("are no tiers of checkpoints", allowed)
        return value

    @field_validator("begin")
    @classmethod
    def _begin_is_one(cls, value: str | None) -> str | None:
        if value is not None and (not value or "\0" in value):
            raise wrong("is no beginning", '"fresh", "existing", or the path of a checkpoint or of a folder of them')
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern_stays_inside(cls, value: str) -> str:
        parts = value.split("/")
        if not value.strip("/") or value.startswith("/") or ".." in parts or "\0" in value:
            raise wrong(
                "is not a pattern below the folder", 'names with wildcards, such as "step-*" or "run-*/step-*.pt"'
            )
        return value

    @field_validator("resume")
    @classmethod
    def _resume_names_the_checkpoint(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and value != (SELF,) and not any("{checkpoint}" in word for word in value):
            allowed = (
                'arguments such as "--resume {checkpoint}", or "self" when the script finds its newest one by itself'
            )
            raise wrong("does not say where the checkpoint's path goes", allowed)
        return value


class RestartTable(Document):
    """`[restart]`: how often ranks are restarted without progress."""

    retries: CountOrZero = 3
    """Failures that are followed by a restart, as long as no new checkpoint is complete."""
    backoff: Duration = 1.0
    """The pause before the second restart, which doubles up to a minute."""
    forget: Annotated[Duration, Field(gt=0)] | None = None
    """Ranks that ran for so long count as progress, whatever they saved: for what runs for months and saves nothing."""


class HangTable(Document):
    """`[hang]`: what is done when no rank goes on."""

    enabled: bool = True
    """Whether that is watched for."""
    after: Literal["auto"] | Annotated[Duration, Field(ge=5)] = "auto"
    """How long all ranks must stand; `auto`: ten times a step, at least a minute. Before the first step: ten minutes at least."""
    action: Literal["report", "restart", "end"] = "report"
    """What is done once it is known why: a finding is written, ranks are started again, or the run ends as failed."""


class ScanTable(Document):
    """`[scan]`: what is done about files that are poisoned, or of which nobody can say that they are not."""

    policy: Literal["block", "warn", "off"] | None = None
    """`block`: only what is clean runs; `warn`: all is told and runs; `off`: nothing is looked at. Without it what is poisoned stops a job, what is unknown is told."""
    allow: Lines = ()
    """Names that pickles may look up, as `module.name` or `module.*`, besides those that are known to be harmless."""
    copy_anyway: Lines = ()
    """Files of the job's folder, such as `tests/*.py`, that the run's snapshot carries although a key or poison was found in them."""


class ObserveTable(Document):
    """`[observe]`: what is looked at while ranks train, beside hangs."""

    stragglers: bool = True
    """Whether it is found out which ranks and nodes the others wait for."""
    stragglers_action: Literal["report", "replace"] = "report"
    """What is done about them: a finding is written, or spare nodes also take their place at the next restart."""


class SamplingTable(Document):
    """`[sampling]`: how often nodes and ranks are measured, and by what GPUs are."""

    interval: Annotated[Duration, Field(ge=0.1, le=3600)] = 1.0
    """The time between two samples."""
    gpus: Annotated[str, Field(min_length=1)] = "auto"
    """What measures GPUs: `auto`, `none`, or one source by name."""
    threads: bool | None = None
    """Whether each thread is measured, too; without it, where samples are at least 1 s apart."""
    hardware: bool = True
    """Whether faults of the nodes' hardware become findings of the run."""
    keep: Annotated[Duration, Field(ge=3600)] | None = None
    """Of samples that are older, only means, least and most of each minute stay; without it all stay. Then telemetry is sealed once an hour."""


class LogsTable(Document):
    """`[logs]`: what is kept of what ranks print."""

    keep: Annotated[Size, Field(ge=16 << 20)] | None = None
    """Of what each node prints in a segment, so many of the last bytes stay, and a quarter more at most; without it all stay."""


# A node counts as lost after `lost`; before that its ranks have had a lease without a supervisor, and `kill` to end.
_LEASE_MARGIN_S, _LEASE_MARGIN_SHARE = 2.0, 0.1
_SHORTEST_LEASE_S, _LEASE_BEATS = 1.0, 2
_HEARTBEAT_SHARE, _KILL_SHARE = 0.1, 0.5


class TimeoutsTable(Document):
    """`[timeouts]`: the patience of the control plane."""

    connect: Annotated[Duration, Field(gt=0)] = 30.0
    """How long an agent may take to connect."""
    heartbeat: Annotated[Duration, Field(ge=0.05)] = 1.0
    """The time between two signs of life; shorter where `lost` is short."""
    lost: Annotated[Duration, Field(gt=0)] = 20.0
    """How long a node may be silent before it is lost."""
    orphan: Annotated[Duration, Field(gt=0)] = 60.0
    """How long an agent looks for a supervisor before it gives up."""
    kill: Annotated[Duration, Field(gt=0)] = 10.0
    """How long a process may take to end before it is killed; shorter where `lost` is short."""

    @property
    def lease_s(self) -> float:
        """For how long ranks run on without a supervisor: what is left of `lost` when they must have ended before it is over."""
        return round(self.lost - self.kill - min(_LEASE_MARGIN_S, _LEASE_MARGIN_SHARE * self.lost), 3)

    @model_validator(mode="after")
    def _ranks_end_before_a_node_is_lost(self) -> TimeoutsTable:
        for name, share in (("heartbeat", _HEARTBEAT_SHARE), ("kill", _KILL_SHARE)):
            if name not in self.model_fields_set:
                object.__setattr__(self, name, round(min(getattr(self, name), max(0.05, share * self.lost)), 3))
        least = max(_SHORTEST_LEASE_S, _LEASE_BEATS * self.heartbeat)
        if self.lease_s < least:
            text = (
                f"lost = {self.lost:g} s is too short: ranks need kill = {self.kill:g} s to end, and {least:g} s "
                f"before that without a word of the supervisor (heartbeat = {self.heartbeat:g} s)"
            )
            raise wrong(text, "a longer lost, or a shorter kill or heartbeat")
        return self


class Slurm(Document):
    """`[slurm]`: options for sbatch that have no key of their own, and srun's kind of MPI."""

    options: Lines = ()
    """Options of sbatch that have no key of their own, handed over as they are."""
    mpi: MpiType | None = None
    """The kind of MPI, as `srun --mpi=list` shows it, for `launch = "srun"`."""


def _part_of_data(value: Any) -> Any:
    shares = value if isinstance(value, dict) else {"": value}
    for share in shares.values():
        words = share.strip() if isinstance(share, str) else ""
        try:
            ratio = float(words[:-1]) if words.endswith("%") else 0.0
        except ValueError:
            ratio = 0.0
        if not 0 < ratio <= 100 and not (isinstance(value, dict) and words and not words.endswith("%")):
            raise wrong("is no part of the data", '"1%", or for each data set "1%" or the path of a smaller one')
    return value


class Test(Document):
    """`[test]`: a small job that must pass before the big one is submitted."""

    run: Argv | None = None
    """The command of the test; without it, the job's."""
    need: Need | None = None
    """What the test needs, over what the job needs."""
    data: Annotated[str | dict[Name, str] | None, BeforeValidator(_part_of_data)] = None
    """How much of the data sets the test reads, as `"1%"`; for each by its name: a share, or the path of a smaller one."""
    submit: Literal["after", "together"] = "after"
    """`together`: the job is in the queue while its test runs, and leaves it where that fails."""
    steps: Count | None = None
    """How many steps the job itself takes; without it, the total that the test tells."""
    judge: Literal["refuse", "warn", "off"] = "refuse"
    """What happens where the job asks for less than the test needed: it is refused, it is told, or nothing is looked at."""


class StepDocument(Document):
    """`[steps.NAME]` or `[steps] NAME = {...}`: one step of a small DAG."""

    run: Argv | None = None
    """The command of the step."""
    after: Lines = ()
    """Steps that must be done before it."""
    gpus: CountOrZero | None = None
    """GPUs of each of its nodes."""
    need: Need | None = None
    """What the step needs, over what the job needs."""
    inputs: Lines = ()
    """Files that the step reads, with wildcards: it is done again when one changes. Without them, all code of the job."""
    outputs: Lines = ()
    """Files and folders that the step leaves; one that leaves them not has failed."""


_ADDRESS = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+")


def _addresses(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        if not _ADDRESS.fullmatch(one) or one.startswith("-"):
            raise wrong(f"{one!r} is no address", "name@example.org, or several as a list")
    return value


class NotifyTable(Document):
    """`[notify]`: people and programs that are told when the run has ended."""

    on: Annotated[
        tuple[Literal["end", "failure", "test", "best"], ...], BeforeValidator(listed), Field(min_length=1)
    ] = (
        "end",
        "test",
    )
    """Of what: every end, only failures, the result of `[test]`, the best trial of a sweep."""
    mail: Annotated[tuple[str, ...], BeforeValidator(listed), AfterValidator(_addresses)] = ()
    """Addresses."""
    webhook: str | None = None
    """An address that a JSON document is posted to."""
    token_file: str | None = None
    """A file, mode 0600, with the bearer token of the webhook."""
    command: Annotated[tuple[str, ...], BeforeValidator(listed)] = ()
    """Words of a command that gets the document on its standard input; no shell runs it."""


class ReproTable(Document):
    """`[repro]`: two runs of the job shall compute the same, bit for bit."""

    deterministic: bool = True
    """Whether torch uses deterministic algorithms alone, and no TF32."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 32)] | None = None
    """What Python's hashes, `random`, NumPy and torch are seeded with in every rank; without it, they are not."""


class JobService(Document):
    """`[services]`: a service for the length of a run, under a name: an entry of the catalogue, or a table."""

    instead: ClassVar[dict[str, str]] = {
        "use": 'service = "mlflow", or the like; `cordee service list` shows the catalogue'
    }

    service: Annotated[str, Field(min_length=1)]
    """The entry of the catalogue of services, or the file of a blueprint, from the job's folder."""
    set: dict[str, str] = Field(default_factory=dict)
    """Its parameters, as `cordee service deploy --set`."""


def _job_service(value: Any) -> Any:
    return {"service": value} if isinstance(value, str) else value


_TABLES_OF_A_SWEEP = frozenset(("first", "range", *RetriesTable.model_fields))


def _sweep_value(value: Any) -> Any:
    if isinstance(value, dict) and not _TABLES_OF_A_SWEEP.isdisjoint(value):
        return value  # halving, retries, or a parameter with a condition: read with the space
    values = value if isinstance(value, list) else [value]
    if values and all(isinstance(item, (str, int, float)) for item in values):
        return tuple(values) if isinstance(value, list) else value
    raise wrong("is not a range of a parameter", '"log 1e-5..1e-1", "0..10", or a list of values')


class Job(Document):
    """A whole cordee.toml; only `name` and `run` are required. `[on.CLUSTER]` is merged before it is validated."""

    beside: ClassVar[tuple[str, ...]] = ("on",)

    name: Name
    """The job's name, with which the ids of its runs begin."""
    run: Argv
    """The command of each rank: a text that is split as a shell would, or a list of words; no shell runs."""
    environment: str | None = None
    """The EDF of the container that ranks run in; empty: none."""
    setup: Lines = ()
    """Shell lines that run before the ranks, once on each node."""
    code: Literal["live", "snapshot"] = "live"
    """`live` runs the job's folder as it is, `snapshot` the copy in the run's folder."""
    launch: Literal["fork", "srun"] = "fork"
    """`fork`: the agent starts the ranks; `srun`: Slurm does, for MPI."""
    env: dict[str, VariableText] = Field(default_factory=dict)
    """Variables of set-up lines and ranks; their values are never shown."""
    need: Need = Need.model_construct()
    """What the job needs of its cluster."""
    vet: VetTable = VetTable.model_construct()
    """What is looked at on each node before the ranks."""
    data: dict[Name, Data] = Field(default_factory=dict)
    """Data sets, which ranks find by CORDEE_DATA_NAME."""
    checkpoint: CheckpointTable | None = None
    """Where complete checkpoints lie, and how a restart continues from one."""
    restart: RestartTable = RestartTable.model_construct()
    """How often ranks are restarted."""
    sampling: SamplingTable = SamplingTable.model_construct()
    """How often nodes and ranks are measured."""
    logs: LogsTable = LogsTable.model_construct()
    """What is kept of what ranks print."""
    hang: HangTable = HangTable.model_construct()
    """What is done when no rank goes on."""
    scan: ScanTable = ScanTable.model_construct()
    """Poisoned models and checkpoints: what is done about them."""
    egress: EgressTable = EgressTable.model_construct()
    """What the job sends out of the site."""
    plan: PlanTable = PlanTable.model_construct()
    """What is known of the model, so that its memory is known before it is submitted."""
    observe: ObserveTable = ObserveTable.model_construct()
    """What is looked at while ranks train."""
    metrics: MetricsTable = MetricsTable.model_construct()
    """What is recorded beside `cordee.log`."""
    timeouts: TimeoutsTable = TimeoutsTable.model_construct()
    """The patience of the control plane."""
    notify: NotifyTable | None = None
    """People and programs that are told when the run has ended."""
    sweep: dict[str, Annotated[Any, BeforeValidator(_sweep_value)]] = Field(default_factory=dict)
    """Ranges of parameters to try: `run` once for each choice of values."""
    steps: dict[Name, StepDocument] = Field(default_factory=dict)
    """Steps with needs of their own, each a run below the job's."""
    test: Test | None = None
    """A small job that must pass first."""
    farm: FarmTable | None = None
    """Many tasks in one allocation: `run` once for each line of a file."""
    services: dict[Name, Annotated[JobService, BeforeValidator(_job_service)]] = Field(default_factory=dict)
    """Services that run as long as the job, ready before its ranks."""
    repro: ReproTable | None = None
    """What is done so that two runs compute the same."""
    slurm: Slurm = Slurm.model_construct()
    """What only Slurm understands."""

    @field_validator("env")
    @classmethod
    def _names_are_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise wrong(f"{name!r} cannot be the name of a variable", "a name without = and NUL")
            if name.startswith("CORDEE_"):
                raise wrong(f"{name} belongs to Cordée", "names that do not begin with CORDEE_")
        return value

    @field_validator("steps")
    @classmethod
    def _steps_follow_steps(cls, value: dict[str, StepDocument]) -> dict[str, StepDocument]:
        for name, step in value.items():
            for before in step.after:
                if before not in value or before == name:
                    raise wrong(f"{name} comes after {before!r}, which is no other step", ", ".join(sorted(value)))
        try:
            TopologicalSorter({name: step.after for name, step in value.items()}).prepare()
        except CycleError as error:
            circle = " after ".join(reversed(error.args[1]))
            raise wrong(f"the steps go in a circle: {circle}", "steps of which each comes after others alone") from None
        return value

    @model_validator(mode="after")
    def _tasks_are_no_ranks(self) -> Job:
        """Nobody waits for anybody in a pool: nothing there hangs or straggles, and what has ended is not started again."""
        if self.pools:
            said = self.model_fields_set
            for key, value in (("hang", HangTable(enabled=False)), ("observe", ObserveTable(stragglers=False))):
                if key not in said:
                    object.__setattr__(self, key, value)
            if self.checkpoint is None or self.checkpoint.resume is None:
                goes_on = (self.checkpoint or CheckpointTable()).model_copy(update={"resume": (SELF,)})
                object.__setattr__(self, "checkpoint", goes_on)
            if self.launch != "fork":
                raise wrong("launch has no meaning beside farm and sweep: the agent starts their tasks", "no launch")
            if self.farm is not None and self.sweep:
                raise wrong("farm and sweep cannot both be", "one of them")
        return self

    @property
    def pools(self) -> bool:
        """Whether the job is many tasks, and not one group of ranks."""
        return self.farm is not None or bool(self.sweep)

    @property
    def parameters(self) -> frozenset[str]:
        """The names that `{name}` in `run` stands for."""
        own = {"line", "number"} if self.farm is not None else {"number"} if self.sweep else set()
        return frozenset(parameters_of(self.sweep)) | own
