"""Many tasks in one allocation: the tables `[farm]` and `[sweep]` of the job document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cordee.core.documents.fields import Count, CountOrZero, Document, Duration, Size, wrong

FORMATS = ("lines", "meta", "glost", "disbatch", "parallel", "array")


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
    retries: CountOrZero = 0
    """How often a task that failed is run again. Tasks that were lost with their node are, without being counted."""
    order: Literal["given", "longest"] = "given"
    """`longest`: tasks with the longest `time` first."""
    stop_after: Count | None = None
    """Failed tasks after which no other is started; without it, all are run."""


_GOAL = re.compile(r"(min|max)\s+(\S+)")


def _goal(value: str) -> str:
    if not _GOAL.fullmatch(value):
        raise wrong(
            "is no goal", '"min loss", "max accuracy": what is to become small or large, as `cordee.log` names it'
        )
    return value


class SweepSettings(Document):
    """The keys of `[sweep]` that are no parameters."""

    goal: Annotated[str, AfterValidator(_goal)]
    """What is wanted, such as `min loss`: the last value that a trial logs under that name."""
    trials: Count | None = None
    """How many trials; without it, all of a grid."""
    sampler: Literal["grid", "random", "sobol"] | None = None
    """How values are chosen; without it, `grid` where `trials` is not given, else `sobol`."""
    seed: CountOrZero = 0
    """Of `random` and `sobol`: the same values again."""
    cores: Count = 1
    """Whole cores of each trial."""
    gpus: Annotated[float, Field(ge=0, le=1024)] = 0.0
    """GPUs of each trial; a number below 1 is a share of one."""
    memory: Size | None = None
    """Memory of each trial."""
    time: Annotated[Duration, Field(gt=0)] | None = None
    """How long each trial may take."""
    retries: CountOrZero = 0
    """How often a trial that failed is run again."""


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
