"""The plan as `cordee check` shows it."""

from __future__ import annotations

import shlex
from itertools import takewhile
from typing import Any

from cordee.core.backends import abilities
from cordee.core.secrets import MASK, masked_document, masked_text, masked_values, masked_words
from cordee.core.units import format_duration, format_size
from cordee.job.load import LoadedJob
from cordee.job.plan.model import DataSet, Plan, Request, Scheduler, Step


def render_plan(plan: Plan, script: str, *, whole: bool = False) -> str:
    """Return what would happen, as text: what runs where, what a failure leads to, what would be started.

    Args:
        script: what would be submitted.
        whole: whether all of it is shown; else its head, the comments and the options that a scheduler reads there.
    """
    step = plan.step
    rows = [
        ("job", f"{plan.name} on {plan.cluster} ({plan.backend})"),
        ("command", shlex.join(masked_words(step.tasks.argv))),
        *(_scheduler(step.request.scheduler) if abilities(plan.backend).queues else ()),
        ("in", plan.workdir + (" (a snapshot of the job's folder)" if plan.workdir != plan.job_folder else "")),
        *_resources(step.request),
        *([("world", "none: the rank runs as if started by hand")] if step.tasks.untold else ()),
        *([("binding", "each rank to CPUs near its GPU")] if step.tasks.bind == "gpu" else ()),
        *_surroundings(step),
        *_checkpoints(step),
        ("failures", _failures(step)),
        ("run folder", plan.folder),
    ]
    lines = [f"{name:<11} {text}" for name, text in rows]
    started = masked_text(script).rstrip("\n").split("\n")
    head = list(takewhile(lambda line: not line or line.startswith("#"), started))
    if head and not whole:
        rest = len(started) - len(head)
        started = [*head, f"# {rest} lines that start Cordée's own processes: `cordee check --explain` shows them"]
    lines += ["", "what would be started:", *(f"  {line}".rstrip() for line in started)]
    return "\n".join(lines) + "\n"


def render_provenance(loaded: LoadedJob) -> str:
    """Return a table of every value and where it came from."""
    rows = [(key, _short(value), str(loaded.provenance.get(key, "default"))) for key, value in leaves(loaded)]
    width = max(len(key) for key, _, _ in rows)
    middle = min(40, max(len(value) for _, value, _ in rows))
    return "\n".join(f"{key:{width}}  {value:{middle}}  {origin}" for key, value, origin in rows) + "\n"


def leaves(loaded: LoadedJob) -> list[tuple[str, object]]:
    """Return (dotted key, value) of every value of the document, defaults included, without secrets."""
    found: list[tuple[str, object]] = []

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            found.append((prefix, value))

    walk("", masked_document(loaded.job.model_dump(mode="json", by_alias=True)))
    return found


def data_variables(step: Step) -> dict[str, str]:
    """Return the variables that name the places of data sets, which are no secrets."""
    return {one.variable: one.place for one in step.data}


def _resources(request: Request) -> list[tuple[str, str]]:
    world = request.nodes * request.ranks_per_node
    nodes = f"{request.nodes}" + (f" and {request.spare_nodes} spare" if request.spare_nodes else "")
    if request.min_nodes < request.nodes:
        nodes += f", at least {request.min_nodes}"
    rows = [("nodes", nodes), ("ranks", f"{world} ({request.ranks_per_node} per node)")]
    if request.cpus_per_rank:
        rows.append(("cores", f"{request.cpus_per_rank} per rank"))
    if request.gpus_per_node:
        rows.append(("gpus", f"{request.gpus_per_node} per node" + (f", {request.gpu}" if request.gpu else "")))
        if request.scheduler.gpu_type:
            rows.append(("gpu type", request.scheduler.gpu_type))
    if request.scheduler.exclusive:
        rows.append(("share", "whole nodes, with all their memory" if not request.memory_bytes else "whole nodes"))
    if request.memory_bytes:
        rows.append(("memory", f"{format_size(request.memory_bytes)} per node"))
    return rows


def _surroundings(step: Step) -> list[tuple[str, str]]:
    rows = []
    rows += _time(step)
    rows += _environment(step)
    rows += [("data", f"{one.name}: {_data_set(one)}") for one in step.data]
    rows += [("set-up", masked_text(line)) for line in step.tasks.setup]
    shown = masked_values(step.tasks.env, data_variables(step))
    rows += [("env", f"{name}={value if value == MASK else shlex.quote(value)}") for name, value in shown.items()]
    if step.tasks.path_prepend:
        rows.append(("PATH", f"begins with {':'.join(step.tasks.path_prepend)}"))
    wanted = [*step.vet.commands, *(f"import {name}" for name in step.vet.modules)]
    memory, disk = format_size(step.vet.min_memory_bytes), format_size(step.vet.min_disk_bytes)
    rows.append(("vetting", ", ".join([f"{memory} of memory", f"{disk} of disk", *wanted]) + " on every node"))
    return rows + (_protocol(step.vet.protocol) if step.vet.protocol else [])


def _environment(step: Step) -> list[tuple[str, str]]:
    """Return what the ranks run in: the EDF, the image and the engine, and every mount."""
    if step.environment is None:
        return []
    document, config = step.environment.document, step.environment.document["config"]
    image = document["image"] or "the host's own root"
    digest = f" ({config['digest']})" if config["digest"] else ""
    engine = step.environment.option or step.environment.engine
    rows = [("environment", f"{step.environment.files[-1]}, by {engine}"), ("image", image + digest)]
    for mount in document["mounts"]:
        flags = f" ({', '.join(mount['flags'])})" if mount["flags"] else ""
        rows.append(("mount", f"{mount['source']} at {mount['target']}{flags}"))
    return rows


def _data_set(planned: DataSet) -> str:
    """Return what a data set is and where it lies, in a line."""
    parts = [planned.kind]
    if planned.samples is not None:
        parts.append(f"{planned.samples:,} samples")
    if planned.bytes is not None:
        parts.append(format_size(planned.bytes))
    if planned.files is not None and planned.kind != "packed":
        parts.append(f"{planned.files:,} files" if planned.whole else f"more than {planned.files:,} files")
    text = f"{', '.join(parts)} at {planned.place}"
    known = [
        f"tier {planned.tier}" if planned.tier else "",
        f"shared as {planned.shared}" if planned.shared else "",
        f"licence: {planned.licence}" if planned.licence else "",
    ]
    return text + (f" ({'; '.join(filter(None, known))})" if any(known) else "")


def _protocol(protocol: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the protocol's name, its checks and what becomes of the results."""
    names = [entry["check"] + ("" if entry["required"] else " (optional)") for entry in protocol["checks"]]
    if protocol["pairs"]:
        names.append("pair.bandwidth" + ("" if protocol["pairs"]["required"] else " (optional)"))
    rows = [("protocol", f"{protocol['name']}, within {format_duration(protocol['deadline_s'])}")]
    rows.append(("checks", ", ".join(dict.fromkeys(names))))
    if protocol["history"]:
        rows.append(("history", protocol["history"].get("folder") or protocol["history"]["url"]))
    return rows


def _scheduler(scheduler: Scheduler) -> list[tuple[str, str]]:
    """Return what is asked of a scheduler, one row for each."""
    document = scheduler.model_dump()
    names = ("partition", "account", "qos", "constraint", "reservation")
    rows = [(name, str(document[name])) for name in names if document[name]]
    return rows + [("option", masked_text(option)) for option in scheduler.options]


def _time(step: Step) -> list[tuple[str, str]]:
    segment, time_s = step.segment, step.request.time_s
    if segment.limit_s is None:
        return []
    grace = format_duration(segment.grace_s)
    if segment.max_segments == 1:
        return [("time", f"{format_duration(segment.limit_s)}; the ranks are asked to stop {grace} before")]
    whole, one = format_duration(time_s or 0), format_duration(segment.limit_s)
    how = {"requeue": "requeued", "resubmit": "submitted again", "forbidden": "not continued"}[segment.next]
    text = f"{segment.max_segments} of {one}; each saves {grace} before its end and is {how}"
    return [("time", whole), ("segments", text)]


def _checkpoints(step: Step) -> list[tuple[str, str]]:
    checkpoint = step.checkpoint
    rows = [("checkpoints", f"{checkpoint.path}/{checkpoint.pattern}")]
    if checkpoint.begin is not None and checkpoint.begin.checkpoints:
        rows.append(("begins from", list(checkpoint.begin.checkpoints)[-1]))
    if checkpoint.resume == "self":
        rows.append(("restart", "the same command; the script finds its newest checkpoint"))
    elif checkpoint.resume:
        rows.append(("restart", f"appends {shlex.join(checkpoint.resume)}"))
    if checkpoint.signal:
        rows.append(("signal", f"{checkpoint.signal} to the ranks before the time is over"))
    return rows


def _failures(step: Step) -> str:
    retries = step.restart.retries
    if not retries:
        return "the run ends with the first rank that fails"
    times = "once" if retries == 1 else f"up to {retries} times"
    return f"all ranks are restarted, {times} without a new checkpoint in between"


def _short(value: object) -> str:
    text = "-" if value is None else shlex.join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
