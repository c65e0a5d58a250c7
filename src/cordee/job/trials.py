"""Many tasks in one allocation: the tables `[farm]` and `[sweep]` of the job document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cordee.core.documents.fields import Count, CountOrZero, Document, Duration, Size, wrong

FORMATS = ("lines", "meta", "glost", "disbatch", "parallel", "array")


class RetriesTable(Document):
    """How often a task is run again for each reason to fail."""

    exit: CountOrZero = 0
    """It ended with an exit code other than 0."""
    signal: CountOrZero = 0
    """A signal ended it, such as the kernel's when there was no memory left."""
    time: CountOrZero = 0
    """Its time was over."""
    value: CountOrZero = 0
    """A trial ended well, and had no finite value."""


def retries_of(retries: int | RetriesTable) -> int | dict[str, int]:
    """Return them as the plan has them."""
    return retries if isinstance(retries, int) else retries.model_dump()


class FarmTable(Document):
    """`[farm]`: `run` once for each line of a file, in one allocation."""

    file: Annotated[str, Field(min_length=1)]
    """The file with the tasks, below the job's folder or absolute; it is copied into the run's folder."""
    format: Literal["auto", "lines", "meta", "glost", "disbatch", "parallel", "array"] = "auto"
    """What the file is; `auto` tells it by what is in there."""
    cores: Count = 1
    """Whole cores of each task: so many run at once as a node has cores for."""
    gpus: Annotated[float, Field(ge=0, le=1024)] = 0.0
    """GPUs of each task; a number below 1 is a share of one."""
    memory: Size | None = None
    """Memory of each task: so many run at once as fit. Without it, memory is not looked at."""
    time: Annotated[Duration, Field(gt=0)] | None = None
    """How long each task may take: it is ended then, and none is started that could not end before the job does."""
    retries: CountOrZero | RetriesTable = 0
    """How often a task that failed is run again, or `{ exit, signal, time }`. Tasks lost with their node are, without being counted."""
    order: Literal["given", "longest"] = "given"
    """`longest`: tasks with the longest `time` first."""
    jobs: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    """Over so many jobs of the scheduler the tasks are dealt out."""
    stop_after: Count | None = None
    """Failed tasks after which no other is started; without it, all are run."""


_GOAL = re.compile(r"(min|max)\s+(\S+)")
LEARNING = ("tpe", "gp", "cma", "nsga")


def _goals(value: Any) -> tuple[str, ...]:
    goals = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else ()
    if not goals or not all(isinstance(goal, str) and _GOAL.fullmatch(goal) for goal in goals):
        raise wrong(
            "is no goal",
            '"min loss", "max accuracy": what is to become small or large, as `cordee.log` names it; several as a list',
        )
    if len({goal.split()[1] for goal in goals}) < len(goals):
        raise wrong("names one metric twice", "goals of different metrics")
    return goals


def _sampler(value: Any) -> Any:
    if value in ("grid", "random", "sobol", *LEARNING):
        return value
    raise wrong(
        "is not there",
        "grid, random, sobol; tpe, gp, cma and nsga learn; `halving = { first = 10 }` ends trials that are behind; "
        "others by a script of your own",
    )


def listed(value: Any) -> Any:
    """Return a text as the only one of a list."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class HalvingTable(Document):
    """`[sweep] halving`: trials that are behind are ended early."""

    first: Count
    """Trials are compared when they have come to this step, and to `factor` times as many, and so on."""
    factor: Annotated[int, Field(strict=True, ge=2, le=100)] = 3
    """The best of so many go on."""


class SweepSettings(Document):
    """The keys of `[sweep]` that are no parameters."""

    goal: Annotated[tuple[str, ...], BeforeValidator(_goals)]
    """What is wanted, such as `min loss`: the last value that a trial logs under that name. A list: several goals."""
    trials: Count | None = None
    """How many trials; without it, all of a grid."""
    sampler: (
        Annotated[Literal["grid", "random", "sobol", "tpe", "gp", "cma", "nsga"], BeforeValidator(_sampler)] | None
    ) = None
    """How values are chosen; without it, `grid` where `trials` is not given, else `sobol`. The last four learn, by Optuna."""
    seed: CountOrZero = 0
    """Of all samplers but `grid`: the same values again, where the trials end in the same order."""
    result: str | None = None
    """A JSON file that each trial writes, such as `results/{number}.json`, in place of what it logs: a number, or an object by name."""
    halving: HalvingTable | None = None
    """`{first, factor}`: trials that are behind the others at the same step are ended early; without it, none are."""
    jobs: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    """Over so many jobs of the scheduler the trials are dealt out."""
    track: Annotated[tuple[Literal["mlflow", "wandb"], ...], BeforeValidator(listed)] = ()
    """Where trials are written to as well, each as a run of its own."""
    nodes: Count = 1
    """Nodes of each trial, which has all of them at once; what it asks for below, it asks each of them for."""
    ranks: Count = 1
    """Ranks of each trial on each of its nodes: they find RANK, WORLD_SIZE, MASTER_ADDR and the like, the trial's own."""
    cores: Count = 1
    """Whole cores of each trial, for all its ranks on a node."""
    gpus: Annotated[float, Field(ge=0, le=1024)] = 0.0
    """GPUs of each trial; a number below 1 is a share of one."""
    memory: Size | None = None
    """Memory of each trial."""
    time: Annotated[Duration, Field(gt=0)] | None = None
    """How long each trial may take."""
    retries: CountOrZero | RetriesTable = 0
    """How often a trial that failed is run again, or `{ exit, signal, time, value }`."""


def parameters_of(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a sweep, with their ranges."""
    return {name: value for name, value in sweep.items() if name not in SweepSettings.model_fields}


def settings_of(sweep: Mapping[str, Any]) -> SweepSettings:
    """Return what a sweep says besides.

    Raises:
        ValidationError: it says something that is not understood.
    """
    return SweepSettings.model_validate(
        {name: value for name, value in sweep.items() if name in SweepSettings.model_fields}
    )


def jobs_of(farm: FarmTable | None, sweep: Mapping[str, Any]) -> int:
    """Return over how many jobs tasks are dealt out."""
    count = farm.jobs if farm is not None else sweep.get("jobs", 1)
    return count if isinstance(count, int) and count > 1 else 1
