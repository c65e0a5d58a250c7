"""The job class that a request falls into: sites favour short jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.core.errors import CordeeError
from cordee.core.units import format_duration
from cordee.job.cluster import load_cluster
from cordee.job.document import Need
from cordee.job.plan.placement import place


def class_words(plan: Mapping[str, Any], request: Mapping[str, Any]) -> str | None:
    """Return which class of its cluster holds a smaller request of a run, in words; None: the same one, or nobody knows.

    Args:
        plan: the run's.
        request: what it is to ask for, in the keys of `[need]`.
    """
    asked = plan["steps"][0]["request"]
    try:
        cluster = load_cluster(str(plan["cluster"]))
        need = Need.model_validate({key: value for key, value in request.items() if key != "memory"})
        before, after = place(need.model_copy(update={"time": asked["time_s"]}), cluster), place(need, cluster)
    except (CordeeError, ValueError):
        return None
    # Where somebody named a partition or QOS, no class was chosen.
    chosen = (before.partition, before.qos) == (asked["scheduler"]["partition"], asked["scheduler"]["qos"])
    if after.job_class is None or after.job_class == before.job_class or not chosen:
        return None
    most = f" (up to {format_duration(after.limit.seconds)})" if after.limit.seconds else ""
    return f"the class {after.job_class}{most} holds it, in place of {before.job_class}: short jobs start sooner"
