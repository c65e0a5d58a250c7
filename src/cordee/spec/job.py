"""The job document: cordee.toml."""

from __future__ import annotations

import signal as signals
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from cordee.spec.fields import Argv, Document, Duration, GpuRequirement, Lines, Size

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=1_000_000)]
Environment = dict[str, Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value)]]


def _signal_name(value: str) -> str:
    name = value.removeprefix("SIG")
    if not hasattr(signals, f"SIG{name}") or name in ("KILL", "STOP"):
        raise ValueError("expected the name of a signal that can be handled, such as USR1 or TERM")
    return name


class Need(Document):
    """`[need]`: what the job asks for."""

    nodes: Count = 1
    spare_nodes: CountOrZero = 0
    min_nodes: Count | None = None
    gpus_per_node: CountOrZero = 0
    ranks_per_node: Annotated[Literal["gpu"] | Count, Field(union_mode="left_to_right")] = "gpu"
    cpus_per_rank: Count | None = None
    memory: Size | None = None
    gpu: GpuRequirement | None = None
    time: Duration | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None

    @model_validator(mode="after")
    def _no_more_than_asked_for(self) -> Need:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes = {self.min_nodes} is more than nodes = {self.nodes}")
        return self


class Vet(Document):
    """`[vet]`: what is looked at on every node before the ranks start."""

    protocol: str | None = None
    commands: tuple[str, ...] = Field(default=(), strict=False)
    modules: tuple[str, ...] = Field(default=(), strict=False)
    min_memory: Size = 256 << 20
    min_disk: Size = 256 << 20
    max_load: Annotated[float, Field(gt=0, strict=False)] | None = None
    deadline: Duration = 30.0


class Data(Document):
    """`[data.NAME]`: a data set and the tier that it is staged to."""

    source: str = Field(alias="from")
    to: Literal["auto", "memory", "node", "shared"] = "auto"


class Checkpoint(Document):
    """`[checkpoint]`: where complete checkpoints lie and how a restart goes on from one."""

    path: str = "checkpoints"
    pattern: str = "step-*"
    resume: Argv | None = None
    signal: Annotated[str, AfterValidator(_signal_name)] | None = None
    every: Duration | None = None
    grace: Duration = 120.0

    @field_validator("pattern")
    @classmethod
    def _pattern_stays_inside(cls, value: str) -> str:
        if not value or value.startswith("/") or ".." in value.split("/"):
            raise ValueError('expected a pattern of names below the folder, such as "step-*"')
        return value

    @field_validator("resume")
    @classmethod
    def _resume_names_the_checkpoint(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not any("{checkpoint}" in word for word in value):
            raise ValueError('expected arguments with {checkpoint} in them, such as "--resume {checkpoint}"')
        return value


class Restart(Document):
    """`[restart]`: how often ranks are restarted without progress."""

    retries: CountOrZero = 3
    backoff: Duration = 1.0


class Sampling(Document):
    """`[sampling]`: how often nodes and ranks are measured."""

    interval: Annotated[Duration, Field(ge=0.1, le=3600)] = 1.0


class Slurm(Document):
    """`[slurm]`: options for sbatch that have no key of their own."""

    options: tuple[str, ...] = Field(default=(), strict=False)


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


class Job(Document):
    """A whole cordee.toml; only `name` and `run` are required."""

    name: Name
    run: Argv
    environment: str | None = None
    setup: Lines = ()
    code: Literal["live", "snapshot"] = "live"
    launch: Literal["fork", "srun"] = "fork"
    env: Environment = {}
    need: Need = Need()
    vet: Vet = Vet()
    data: dict[Name, Data] = {}
    checkpoint: Checkpoint | None = None
    restart: Restart = Restart()
    sampling: Sampling = Sampling()
    sweep: dict[str, Any] = {}
    steps: dict[Name, StepDocument] = {}
    test: Test | None = None
    slurm: Slurm = Slurm()

    @field_validator("env")
    @classmethod
    def _names_are_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not name or "=" in name or "\0" in name + text:
                raise ValueError(f"{name!r} cannot be the name of an environment variable")
            if name.startswith("CORDEE_"):
                raise ValueError(f"{name} belongs to Cordée; choose another name")
        return value
