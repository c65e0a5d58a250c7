"""A sweep or farm over several jobs: each is a run of its own below the run, with its share of the tasks."""

from __future__ import annotations

import dataclasses
from typing import Any

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob
from cordee.job.plan.children import ChildJob, ChildJobs
from cordee.job.plan.model import Plan
from cordee.job.trials import LEARNING, jobs_of

# Samplers of jobs beside each other begin with seeds so far apart: each adds the number of its trials to its own.
_APART = 1_000_003


def children(loaded: LoadedJob) -> ChildJobs | None:
    """Return the jobs over which tasks are dealt out; None where there is only one."""
    job = loaded.job
    count = jobs_of(job.farm, job.sweep)
    if count == 1:
        return None
    findings: list[Finding] = []
    trials = job.sweep.get("trials") if job.sweep.get("sampler") in LEARNING else None
    if isinstance(trials, int) and trials < count:
        file, line = loaded.place("sweep", "jobs")
        text, allowed = "there are more jobs than trials", f"at most {trials}"
        findings.append(Finding(text, "error", "sweep-jobs", file, line, count, allowed, "ask for fewer jobs"))
        return ChildJobs((), findings=tuple(findings))
    farm = job.farm.model_copy(update={"jobs": 1}) if job.farm is not None else None
    changed: dict[str, Any] = {"farm": farm, "sweep": {**job.sweep, "jobs": 1} if job.sweep else {}}
    part = dataclasses.replace(loaded, job=job.model_copy(update=changed), findings=())
    alike: dict[int, LoadedJob] = {}
    return ChildJobs(tuple(_part(part, index, count, alike) for index in range(count)), findings=tuple(findings))


def _part(loaded: LoadedJob, index: int, count: int, alike: dict[int, LoadedJob]) -> ChildJob:
    """Return one of them: every `count`-th task, so that those that are alike lie in different jobs.

    Where a sampler learns, it is that share of their number, and each job learns from the journals of the others.

    Args:
        alike: the jobs so far, by their share of such trials: those that are one are planned once.
    """
    trials = loaded.job.sweep.get("trials")
    if loaded.job.sweep.get("sampler") in LEARNING and isinstance(trials, int):
        share = len(range(index, trials, count))
        changed = {"sweep": {**loaded.job.sweep, "trials": share}}
        if share not in alike:
            alike[share] = dataclasses.replace(loaded, job=loaded.job.model_copy(update=changed))
        loaded = alike[share]

    def planned(plan: Plan) -> tuple[Plan, list[Finding]]:
        part = {**plan.step.systems["trials"], "share": [index, count]}
        if part.get("at_once"):
            part["at_once"] = max(1, part["at_once"] // count)
        if part.get("sampling"):
            sampling = part["sampling"]
            part["sampling"] = {**sampling, "deal": [index, count], "seed": sampling["seed"] + _APART * index}
        systems = {**plan.step.systems, "trials": part}
        return plan.model_copy(update={"steps": (plan.step.model_copy(update={"systems": systems}),)}), []

    return ChildJob(f"part-{index + 1}", loaded, about={"kind": "part"}, planned=planned)
