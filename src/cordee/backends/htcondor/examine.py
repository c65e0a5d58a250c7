"""What is worth saying of a plan before it travels to an HTCondor pool."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

from cordee.backends.htcondor.description import IMAGE, image_of, travels
from cordee.core.findings import Finding
from cordee.job.command import script_of
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.job.plan.placement import Placement
from cordee.job.scripts import Script, read_script

# Keys of a job that mean something only where nodes see this machine's files.
_NOT_YET = {
    "services": "services of the job",
}


_MOST_LOOKED_AT = 100_000


def examine_htcondor(loaded: LoadedJob, plan: Plan, placement: Placement) -> list[Finding]:
    """Return the findings on a plan for an HTCondor pool."""
    del placement
    return [*_nodes(loaded, plan), *_not_yet(loaded), *_names(loaded, plan), *_evictions(loaded, plan)]


def _nodes(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    nodes = plan.step.request.nodes + plan.step.request.spare_nodes
    if nodes == 1:
        return []
    text = f"{loaded.cluster.name} runs jobs on one machine, and this one asks for {nodes}: machines of a pool share neither files nor a network of their own"
    what = "add [on.htcondor] need = { nodes = 1 }, and ask for more GPUs of one machine by gpus_per_node"
    return [_finding(loaded, ("need", "nodes"), text, "too-many-nodes", nodes, "1", what)]


def _not_yet(loaded: LoadedJob) -> list[Finding]:
    """Refuse by name what does not travel."""
    found = []
    for table, what in _NOT_YET.items():
        if getattr(loaded.job, table, None):
            text = f"this version cannot have {what} on HTCondor"
            next_step = f"leave out {table} under [on.htcondor], or run it on a cluster with Slurm"
            found.append(_finding(loaded, (table,), text, "not-honoured", table, "a job without it", next_step))
    return found


def _names(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse paths that a submit file cannot name, and two data sets that would arrive as one."""
    places = [data.place.rstrip("/") for data in plan.step.data if "://" not in data.place]
    image = image_of(plan.step.model_dump())
    found = []
    for path in (plan.folder, *places, image):
        if re.search(r"[,\n\"$]", path):
            text = "a submit file of HTCondor cannot name this path"
            allowed, what = "no comma, quote, dollar sign or line end", "rename the folder"
            found.append(_finding(loaded, (), text, "bad-path", path, allowed, what))
    found += [_finding(loaded, ("data",), *finding) for finding in filter(None, map(_link_below, places))]
    for name, count in Counter(map(os.path.basename, [*places, IMAGE] if travels(image) else places)).items():
        if count > 1 or name == plan.run:
            text = f"{count} things would arrive on the machine under the name {name}"
            found.append(_finding(loaded, ("data",), text, "bad-path", name, "names that differ", "rename a folder"))
    return found


def _link_below(place: str) -> tuple[str, str, Any, Any, str] | None:
    """Return what is to be said of a data set that holds a link to a folder, None where it has none among its first entries."""
    seen = 0
    for folder, names, files in os.walk(place):
        for name in names:
            if os.path.islink(os.path.join(folder, name)):
                text = "HTCondor takes no link to a folder, and this data set has one"
                what = "put the folder itself there, or pack the data: `cordee data pack`"
                return text, "not-honoured", os.path.join(folder, name), "files and folders", what
        seen += len(names) + len(files)
        if seen > _MOST_LOOKED_AT:
            return None
    return None


def _evictions(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Say what becomes of a run whose machine is taken back before it can save."""
    checkpoint = plan.step.checkpoint
    name = script_of(loaded.job.run)
    script = read_script(loaded.folder / name, loaded.folder) if name else Script()
    if script.goes_on or checkpoint.signal is not None or checkpoint.resume is not None or checkpoint.declared:
        return []
    text = f"machines of {loaded.cluster.name} may be taken back at any time, and nothing says how this run saves"
    what = "call cordee.checkpointer, or describe [checkpoint]; without either it begins anew each time"
    return [_finding(loaded, ("checkpoint",), text, "evictions", None, None, what, "info")]


def _finding(
    loaded: LoadedJob,
    key: tuple[str, ...],
    text: str,
    rule: str,
    given: Any,
    allowed: Any,
    next_step: str,
    severity: str = "error",
) -> Finding:
    file, line = loaded.place(*key) if key else (None, None)
    return Finding(text, severity, rule, file=file, line=line, given=given, allowed=allowed, next=next_step)
