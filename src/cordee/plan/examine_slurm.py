"""What is worth saying about a plan for Slurm before it is submitted."""

from __future__ import annotations

from cordee.findings import Finding
from cordee.plan.model import Plan
from cordee.plan.placement import Placement
from cordee.spec.load import LoadedJob
from cordee.units import format_duration


def examine_slurm(loaded: LoadedJob, plan: Plan, placement: Placement) -> list[Finding]:
    """Return the findings on a plan for Slurm."""
    return [*_length(loaded, plan, placement)]


def _length(loaded: LoadedJob, plan: Plan, placement: Placement) -> list[Finding]:
    """Say how a time becomes jobs."""
    segment, time_s = plan.step.segment, plan.step.request.time_s
    file, line = loaded.place("need", "time")
    where = placement.limit.owner
    if time_s is None:
        if segment.limit_s is None:
            text = "no time is given, and no limit is known: the job runs until it ends by itself"
        else:
            text = f"no time is given: the job gets {format_duration(segment.limit_s)}, {_whose(placement)}"
        what = "give [need] time: shorter jobs start sooner, and a longer time becomes a chain"
        return [Finding(text, "info", "no-time", file=file, line=line, given=None, next=what)]
    if segment.max_segments == 1 or segment.limit_s is None:
        return []
    limit, whole = format_duration(segment.limit_s), format_duration(time_s)
    if segment.next == "forbidden":
        return [
            Finding(
                f"{whole} is longer than the {limit} of {where}, and {plan.cluster} allows no chain of jobs",
                "error",
                "too-long",
                file=file,
                line=line,
                given=time_s,
                allowed=f"at most {limit}",
                next=f'write time = "{int(segment.limit_s) // 60}min", or choose a partition or QOS with a longer limit',
            )
        ]
    how = "the same job is put back into the queue" if segment.next == "requeue" else "a new job is submitted"
    text = (
        f"{whole} becomes a chain of up to {segment.max_segments} segments of {limit}, the limit of {where}: each is asked "
        f"to save {format_duration(segment.grace_s)} before its end, then {how}"
    )
    return [Finding(text, "info", "chain", file=file, line=line, given=time_s, evidence=segment.model_dump())]


def _whose(placement: Placement) -> str:
    facts = placement.facts
    if facts is not None and facts.default_time is not None:
        return f"the default of partition {placement.partition}"
    return f"the limit of {placement.limit.owner}"
