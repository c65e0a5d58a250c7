"""The plan as `cordee check` shows it."""

from __future__ import annotations

import shlex

from cordee.plan.model import Plan
from cordee.spec.load import LoadedJob
from cordee.units import format_duration, format_size


def render_plan(plan: Plan, script: str) -> str:
    """Return what would happen, as text."""
    step = plan.step
    request, checkpoint = step.request, step.checkpoint
    world = request.nodes * request.ranks_per_node
    lines = [
        f"job         {plan.name} on {plan.cluster} ({plan.backend})",
        f"command     {shlex.join(step.tasks.argv)}",
        f"in          {plan.workdir}",
        f"nodes       {request.nodes}"
        + (f" and {request.spare_nodes} spare" if request.spare_nodes else "")
        + (f", at least {request.min_nodes}" if request.min_nodes < request.nodes else ""),
        f"ranks       {world} ({request.ranks_per_node} per node)",
    ]
    if request.gpus_per_node:
        lines.append(f"gpus        {request.gpus_per_node} per node" + (f", {request.gpu}" if request.gpu else ""))
    if request.memory_bytes:
        lines.append(f"memory      {format_size(request.memory_bytes)} per node")
    if request.time_s:
        lines.append(f"time        {format_duration(request.time_s)}, stopped {format_duration(step.segment.grace_s)} before")
    lines += [f"set-up      {line}" for line in step.tasks.setup]
    if step.tasks.path_prepend:
        lines.append(f"python      {step.tasks.path_prepend[0]}/python")
    lines.append(f"checkpoints {checkpoint.path}/{checkpoint.pattern}")
    if checkpoint.resume:
        lines.append(f"restart     with {shlex.join(checkpoint.resume)}")
    lines.append(f"failures    up to {step.restart.retries} restarts without a new checkpoint in between")
    lines.append(f"run folder  {plan.folder}")
    lines.append("")
    lines.append("what would be started:")
    lines += [f"  {line}" for line in script.rstrip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def render_provenance(loaded: LoadedJob) -> str:
    """Return a table of every value and where it came from."""
    rows = [(key, _short(value), str(loaded.provenance.get(key, "default"))) for key, value in leaves(loaded)]
    width = max(len(key) for key, _, _ in rows)
    middle = min(40, max(len(value) for _, value, _ in rows))
    return "\n".join(f"{key:{width}}  {value:{middle}}  {origin}" for key, value, origin in rows) + "\n"


def leaves(loaded: LoadedJob) -> list[tuple[str, object]]:
    """Return (dotted key, value) of every value of the document, defaults included."""
    found: list[tuple[str, object]] = []

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            found.append((prefix, value))

    walk("", loaded.job.model_dump(mode="json", by_alias=True))
    return found


def _short(value: object) -> str:
    text = "-" if value is None else shlex.join(value) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
