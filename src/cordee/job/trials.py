"""Many tasks in one allocation: the table `[farm]` of the job document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cordee.core.documents.fields import Count, CountOrZero, Document, Duration, Size

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
