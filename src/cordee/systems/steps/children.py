"""The jobs that `[test]` and `[steps]` of a document stand for."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.job.command import script_of
from cordee.job.document import Job, Need, RestartTable, StepDocument
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.children import ChildJob, ChildJobs
from cordee.job.plan.model import Plan
from cordee.job.plan.requirement import least_memory
from cordee.job.scripts import local_files, read_script
from cordee.systems.steps.subset import DataPart, share_of

PART = "cordee.systems.steps.node.part:StepsPart"
TEST = "test"
# A test that nobody gave a time is to be had soon.
TEST_TIME_S = 1800.0
_SCRIPTS = (".py", ".sh", ".bash", ".R", ".jl", ".pl", ".rb", ".lua", ".m")
# Of a command that is not the job's own: nobody has said how it continues, and it is short.
_UNSAID = ("restart-from-zero",)


def children(loaded: LoadedJob) -> ChildJobs | None:
    """Return the test and the steps of a job, each behind those that it comes after; None where it has neither."""
    job = loaded.job
    if not job.steps and job.test is None:
        return None
    saying = JobFindings(loaded)
    found = [_test(loaded, saying)] if job.test is not None else []
    if job.test is not None and TEST in job.steps:
        what = "give the step another name"
        saying.error(f"steps.{TEST}", "name-taken", "a step has the name of the test", given=TEST, next=what)
    first = tuple(child.name for child in found)
    order = TopologicalSorter({name: step.after for name, step in job.steps.items()}).static_order()
    for name in order:
        found.append(_step(loaded, name, job.steps[name], first, saying))
    _outputs(loaded, saying)
    return ChildJobs(tuple(found), not job.steps, PART, tuple(saying.findings))


def _test(loaded: LoadedJob, saying: JobFindings) -> ChildJob:
    test = loaded.job.test
    assert test is not None
    given: dict[str, Any] = {"spare_nodes": 0}
    if (loaded.job.need.time or TEST_TIME_S + 1) > TEST_TIME_S:
        given["time"] = TEST_TIME_S
    need = _over(loaded.job.need, test.need, given)
    about: dict[str, Any] = {
        "kind": "test",
        "judge": test.judge,
        "steps": test.steps,
        "submit": test.submit,
        "gpu_memory_bytes": least_memory(loaded.job.need.gpu),
        "command": "run" in test.model_fields_set,
    }
    shares, paths = _parts(loaded, saying)
    data = {
        name: one.model_copy(update={"source": paths[name]}) if name in paths else one
        for name, one in loaded.job.data.items()
    }
    changed: dict[str, Any] = {"need": need, "data": data}
    if test.run is not None:
        changed["run"] = test.run
    changed.update(_restart(loaded, test.run or loaded.job.run, bool(loaded.job.checkpoint)))
    child = _derived(loaded, changed, ("test",))
    if not shares:
        return ChildJob(TEST, child, (), about, _UNSAID)
    part = DataPart(shares)
    places: dict[str, str] = {}

    def planned(plan: Plan) -> tuple[Plan, list[Finding]]:
        places.update({one.name: one.place for one in plan.step.data})
        return part.planned(plan)

    return ChildJob(TEST, child, (), about, _UNSAID, planned, lambda folder, plan: part.made(folder, plan, places))


def _parts(loaded: LoadedJob, saying: JobFindings) -> tuple[dict[str, float], dict[str, str]]:
    """Return the shares of data sets that the test reads, by name, and the paths of those that have smaller ones."""
    test = loaded.job.test
    given = test.data if test is not None else None
    if given is None:
        return {}, {}
    named = {"": given} if isinstance(given, str) else dict(given)
    if isinstance(given, str) and not loaded.job.data:
        what = "add [data.NAME] with from, or remove test.data"
        saying.warn(
            "test.data", "no-meaning", "test.data has no meaning: the job names no data set", given=given, next=what
        )
    for name in named:
        if name and name not in loaded.job.data:
            allowed = sorted(loaded.job.data) or "none: the job has no [data]"
            saying.error("test.data", "no-data-set", f"there is no data set {name}", given=name, allowed=allowed)
    shares = {name: share for name, text in named.items() if (share := share_of(text)) is not None and share < 1}
    return shares, {name: text for name, text in named.items() if share_of(text) is None}


def _step(loaded: LoadedJob, name: str, step: StepDocument, first: tuple[str, ...], saying: JobFindings) -> ChildJob:
    given = {"gpus_per_node": step.gpus} if step.gpus is not None else {}
    need = _over(loaded.job.need, step.need, given)
    changed: dict[str, Any] = {"need": need, **({"run": step.run} if step.run else {})}
    if step.run is not None:
        changed["checkpoint"] = None  # what the job says of checkpoints is about its own command
    changed.update(_restart(loaded, step.run or loaded.job.run, bool(changed.get("checkpoint", loaded.job.checkpoint))))
    child = _derived(loaded, changed, ("steps", name))
    after = (*step.after, *(first if not step.after else ()))
    about = {"kind": "step", **_identity(child, step, loaded.job.steps)}
    about["travels"] = not abilities(child.cluster.scheduler).shares_files
    return ChildJob(name, child, after, about, _UNSAID if step.run is not None else ())


def _restart(loaded: LoadedJob, run: tuple[str, ...], resumes: bool) -> dict[str, Any]:
    """Return that a command which fails is not tried again, where nobody asked for that and it could only begin anew."""
    script = script_of(run)
    goes_on = script is not None and read_script(loaded.folder / script, loaded.folder).goes_on
    said = "restart" in loaded.job.model_fields_set or loaded.job.pools
    return {} if said or resumes or goes_on else {"restart": RestartTable(retries=0)}


def _code_of(run: tuple[str, ...], folder: Path) -> list[str]:
    """Return the scripts of the job's folder that a command names, and the modules beside them that Python scripts import.

    No other files: the command may name what it writes itself, which is there from the second time on.
    """
    named = [path for path in (folder / word for word in run if not word.startswith("-")) if _is_script(path)]
    files = {file for one in named for file in (local_files(one, folder) if one.suffix == ".py" else [one])}
    return sorted(str(file.relative_to(folder)) for file in files if file.is_relative_to(folder))


def _is_script(path: Path) -> bool:
    return path.is_file() and (path.suffix in _SCRIPTS or os.access(path, os.X_OK))


def _identity(child: LoadedJob, step: StepDocument, steps: Mapping[str, StepDocument]) -> dict[str, Any]:
    """Return what makes a step the same as one that is done: what it runs and reads; not where, nor how large."""
    job = child.job
    told = {
        "run": list(job.run),
        "env": job.env,
        "setup": list(job.setup),
        "environment": job.environment,
        "data": {name: one.source for name, one in job.data.items()},
        "inputs": list(step.inputs),
        "outputs": list(step.outputs),
    }
    everybodys = sorted({output for one in steps.values() for output in one.outputs})
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return {
        "identity": digest,
        "folder": str(child.folder),
        "document": child.path.name,
        "inputs": [*step.inputs, *map(glob.escape, _code_of(job.run, child.folder))] if step.inputs else [],
        "outputs": list(step.outputs),
        "all_outputs": everybodys,
    }


def _over(need: Need, over: Need | None, given: Mapping[str, Any]) -> Need:
    """Return what is needed, with what one of the runs says of it, else with what is given for all of its kind."""
    said = {key: getattr(over, key) for key in (over.model_fields_set if over else ())}
    found: dict[str, Any] = {**given, **said}
    nodes = found.get("nodes", need.nodes)
    if "min_nodes" not in found and (need.min_nodes or nodes) > nodes:
        found["min_nodes"] = None
    changed: Need = need.model_copy(update=found)
    return changed


def _derived(loaded: LoadedJob, changed: Mapping[str, Any], place: tuple[str, ...]) -> LoadedJob:
    """Return a job with other values; findings on what it has of its own point at where that was written."""
    job: Job = loaded.job.model_copy(update={**changed, "steps": {}, "test": None})
    provenance, values = dict(loaded.provenance), dict(loaded.values)
    own: Any = loaded.values
    for key in place:
        own = own.get(key) if isinstance(own, Mapping) else None
    for key in ("run", "need"):
        if isinstance(own, Mapping) and key in own:
            values[key] = own[key]
    for key, origin in loaded.provenance.items():
        inner = key.removeprefix(".".join(place) + ".")
        if inner != key:
            provenance[inner] = origin
    systems = tuple(system for system in loaded.systems if system.name != "steps")
    return dataclasses.replace(loaded, job=job, values=values, provenance=provenance, systems=systems, findings=())


def _outputs(loaded: LoadedJob, saying: JobFindings) -> None:
    """Refuse two steps that leave the same, and outputs outside of all that a step may say of itself."""
    owners: dict[str, str] = {}
    for name, step in loaded.job.steps.items():
        for output in step.outputs:
            key = f"steps.{name}.outputs"
            if output in owners:
                text = f"{name} and {owners[output]} both leave {output}"
                saying.error(key, "two-owners", text, given=output, next="let one of them leave it")
            owners[output] = name
            if not output.strip() or "\0" in output or output.rstrip("/") in (".", "..", ""):
                saying.error(
                    key,
                    "bad-value",
                    f"{output!r} is no output",
                    given=output,
                    allowed="a file or folder",
                    next="name it",
                )
