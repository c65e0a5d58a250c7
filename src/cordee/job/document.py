"""The job document: cordee.toml."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

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
from cordee.job.metrics import MetricsTable


def _ranks(value: Any) -> Any:
    if value == "gpu" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000):
        return value
    raise wrong("is not a number of ranks", '"gpu" (one for each GPU), or a whole number from 1')


class Need(Document):
    """`[need]`: what the job asks for."""

    nodes: Count = 1
    spare_nodes: CountOrZero = 0
    min_nodes: Count | None = None
    gpus_per_node: CountOrZero = 0
    ranks_per_node: Annotated[int | str, BeforeValidator(_ranks)] = "gpu"
    cpus_per_rank: Count | None = None
    bind: Literal["gpu", "none"] | None = None
    memory: Size | None = None
    gpu: GpuRequirement | None = None
    time: Duration | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None

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
    history: bool | str | None = None
    commands: Lines = ()
    modules: Modules = ()
    min_memory: Size = 256 << 20
    min_disk: Size = 256 << 20
    max_load: Annotated[float, Field(gt=0)] | None = None
    deadline: Annotated[Duration, Field(gt=0)] = 30.0


class Data(Document):
    """`[data.NAME]`: a data set, which ranks find by CORDEE_DATA_<NAME>.

    `source` (`from`) is a folder, a file, an archive, packed data, an `s3://` address, or the name of a shared data set of the
    cluster; `to` the kind of tier that it is read from.
    """

    source: str = Field(alias="from")
    to: Literal["auto", "memory", "node", "shared"] = "auto"

    @field_validator("source")
    @classmethod
    def _source_is_a_place(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise wrong("is no place of a data set", "a path, an s3:// address, or a shared data set's name")
        return value


SELF, FRESH, EXISTING = "self", "fresh", "existing"


class CheckpointTable(Document):
    """`[checkpoint]`: where complete checkpoints lie and how a restart goes on from one.

    `path`: None is the run's own folder. `resume`: arguments, or `self`: the script finds its newest checkpoint. `begin`: what
    the run may begin from besides its own: None or `fresh` is nothing, `existing` what lies in `path`, else a path.
    """

    path: str | None = None
    pattern: str = "step-*"
    resume: Argv | None = None
    begin: str | None = None
    signal: SignalName | None = None
    every: Annotated[Duration, Field(gt=0)] | None = None
    grace: Duration = 120.0

    @field_validator("path")
    @classmethod
    def _path_is_one(cls, value: str | None) -> str | None:
        if value is not None and (not value or "\0" in value):
            raise wrong("is not a path", 'a folder, such as "checkpoints"; a relative one is below the job\'s folder')
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
    backoff: Duration = 1.0


class HangTable(Document):
    """`[hang]`: what is done when no rank goes on.

    `after`: how long all ranks must stand; `auto`: ten times a step, at least a minute. Until all have made a step it is ten
    minutes at least, and where some do something else, as validating, five times as long and ten minutes at least.
    """

    enabled: bool = True
    after: Literal["auto"] | Annotated[Duration, Field(ge=5)] = "auto"
    action: Literal["report", "restart", "end"] = "report"


class SamplingTable(Document):
    """`[sampling]`: how often nodes and ranks are measured, and by what GPUs are."""

    interval: Annotated[Duration, Field(ge=0.1, le=3600)] = 1.0
    gpus: Annotated[str, Field(min_length=1)] = "auto"
    threads: bool | None = None


# A node counts as lost after `lost`; before that its ranks have had a lease without a supervisor, and `kill` to end.
_LEASE_MARGIN_S, _LEASE_MARGIN_SHARE = 2.0, 0.1
_SHORTEST_LEASE_S, _LEASE_BEATS = 1.0, 2
_HEARTBEAT_SHARE, _KILL_SHARE = 0.1, 0.5


class TimeoutsTable(Document):
    """`[timeouts]`: the patience of the control plane.

    `heartbeat` and `kill` follow a short `lost` where they are not given.
    """

    connect: Annotated[Duration, Field(gt=0)] = 30.0
    heartbeat: Annotated[Duration, Field(ge=0.05)] = 1.0
    lost: Annotated[Duration, Field(gt=0)] = 20.0
    orphan: Annotated[Duration, Field(gt=0)] = 60.0
    kill: Annotated[Duration, Field(gt=0)] = 10.0

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
    mpi: MpiType | None = None


class Test(Document):
    """`[test]`: a small job that must pass before the big one is submitted."""

    run: Argv
    need: Need | None = None


class StepDocument(Document):
    """`[steps.NAME]` or `[steps] NAME = {...}`: one step of a small DAG."""

    run: Argv | None = None
    after: Lines = ()
    gpus: CountOrZero | None = None
    need: Need | None = None


def _sweep_value(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if values and all(isinstance(item, (str, int, float)) for item in values):
        return tuple(values) if isinstance(value, list) else value
    raise wrong("is not a range of a parameter", '"log 1e-5..1e-1", "0..10", or a list of values')


class Job(Document):
    """A whole cordee.toml; only `name` and `run` are required. `[on.CLUSTER]` is merged before it is validated."""

    beside: ClassVar[tuple[str, ...]] = ("on",)

    name: Name
    run: Argv
    environment: str | None = None
    setup: Lines = ()
    code: Literal["live", "snapshot"] = "live"
    launch: Literal["fork", "srun"] = "fork"
    env: dict[str, VariableText] = Field(default_factory=dict)
    need: Need = Need.model_construct()
    vet: VetTable = VetTable.model_construct()
    data: dict[Name, Data] = Field(default_factory=dict)
    checkpoint: CheckpointTable | None = None
    restart: RestartTable = RestartTable.model_construct()
    sampling: SamplingTable = SamplingTable.model_construct()
    hang: HangTable = HangTable.model_construct()
    metrics: MetricsTable = MetricsTable.model_construct()
    timeouts: TimeoutsTable = TimeoutsTable.model_construct()
    sweep: dict[str, Annotated[Any, BeforeValidator(_sweep_value)]] = Field(default_factory=dict)
    steps: dict[Name, StepDocument] = Field(default_factory=dict)
    test: Test | None = None
    slurm: Slurm = Slurm.model_construct()

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
        return value

    @property
    def parameters(self) -> frozenset[str]:
        """The names that `{name}` in `run` stands for."""
        return frozenset(self.sweep) - {"goal", "trials"}
