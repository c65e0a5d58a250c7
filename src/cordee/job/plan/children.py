"""The jobs below a job, as a system makes them of its document: each becomes a run of its own below the job's run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.runs.folder import RunFolder


class ChildJob(NamedTuple):
    """One of them.

    Attributes:
        name: in the graph.
        loaded: the job, with all that it does not share with the one above.
        after: the names of those that must be done before.
        about: what the system wants to know of it later.
        unsaid: rules of findings that do not hold for it.
        planned: returns its plan as it is to be, and findings; None: as it was made.
        made: called with its folder, which has just been written, and its plan; None: nothing is to be added.
    """

    name: str
    loaded: LoadedJob
    after: tuple[str, ...] = ()
    about: Mapping[str, Any] = {}
    unsaid: tuple[str, ...] = ()
    planned: Callable[[Plan], tuple[Plan, list[Finding]]] | None = None
    made: Callable[[RunFolder, Plan], None] | None = None


class ChildJobs(NamedTuple):
    """All of them.

    Attributes:
        jobs: each behind those that it comes after.
        main: whether the job itself starts when they are done; else they are all there is.
        part: the `GraphPart` (`cordee.runs.children`) that judges them, as `module:object`.
        findings: what is to be said of them; an error stops the job.
    """

    jobs: tuple[ChildJob, ...]
    main: bool = False
    part: str = ""
    findings: tuple[Finding, ...] = ()
