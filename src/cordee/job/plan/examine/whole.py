"""What is worth saying about a plan before it runs: what would fail, what would be lost, what is not honoured."""

from __future__ import annotations

from typing import Any

from cordee.core.backends import Backend, backend, known
from cordee.core.errors import SubmitError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.units import format_size
from cordee.job.command import CommandFacts
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Examinations
from cordee.job.plan.examine.command import examine_command, examine_world
from cordee.job.plan.model import Plan
from cordee.job.plan.placement import Placement

# Keys that some back ends honour and others leave out.
_NOT_EVERYWHERE = (
    "need.account",
    "need.partition",
    "need.qos",
    "need.constraint",
    "need.reservation",
    "need.disk",
    "slurm.options",
    "slurm.mpi",
)
_ORDER = {"error": 0, "warn": 1, "info": 2}


def examine(
    loaded: LoadedJob, plan: Plan, placement: Placement, systems: Examinations, command: CommandFacts
) -> list[Finding]:
    """Return the findings on a plan, the errors first.

    Args:
        systems: those that were asked while it was compiled; now they judge the whole.
    """
    back_end = _backend(plan)
    resources = _resources(loaded, plan, back_end) if back_end else []
    findings = [
        *loaded.findings,
        *systems.findings,
        *_not_honoured(loaded),
        *(_left_out(loaded, back_end) if back_end else _no_backend(plan)),
        *_binding(loaded, plan),
        *examine_command(loaded, plan, command),
        *examine_world(loaded, plan, command),
        *resources,
        *(load(back_end.examine)(loaded, plan, placement) if back_end and back_end.examine else ()),
        *systems.judged(plan),
    ]
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def _binding(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Say that ranks are not put near GPUs although the job asks for it."""
    if loaded.job.need.bind != "gpu" or plan.step.tasks.bind == "gpu":
        return []
    file, line = loaded.place("need", "bind")
    why = "the job asks for no GPU" if loaded.job.launch == "fork" else "with launch = srun, srun binds the ranks"
    text = f"need.bind has no meaning: {why}"
    return [Finding(text, "info", "no-meaning", file=file, line=line, given="gpu", next="remove need.bind")]


def _not_honoured(loaded: LoadedJob) -> list[Finding]:
    """Refuse by name what this version cannot do."""
    job, findings = loaded.job, []
    many = "farm" if job.farm is not None else "sweep"
    for key, value in (("steps", job.steps), ("test", job.test)):
        if value and job.pools:
            file, line = loaded.place(key)
            findings.append(
                Finding(
                    f"this version cannot honour {key} beside {many}",
                    "error",
                    "not-honoured",
                    file=file,
                    line=line,
                    given=sorted(value) if isinstance(value, dict) else "a table",
                    allowed=f"{key} or {many}",
                    next=f"remove one of them: a job of its own for the {many}",
                )
            )
    return findings


def _backend(plan: Plan) -> Backend | None:
    try:
        return backend(plan.backend)
    except SubmitError:
        return None


def _no_backend(plan: Plan) -> list[Finding]:
    text = f"this version cannot submit to {plan.backend}"
    what = "run it here with --on local"
    return [Finding(text, "error", "not-honoured", given=plan.cluster, allowed=known(), next=what)]


def _left_out(loaded: LoadedJob, back_end: Backend) -> list[Finding]:
    """Refuse a launcher that the back end does not have, and name what means nothing to it."""
    job, findings, can = loaded.job, [], back_end.abilities
    if job.launch == "srun" and "launch" not in can.honours:
        file, line = loaded.place("launch")
        here = back_end.name if can.several_machines or can.queues else "one machine"
        findings.append(
            Finding(
                f"launch = srun needs Slurm, and this is {here}",
                "error",
                "not-honoured",
                file=file,
                line=line,
                given="srun",
                allowed='"fork"',
                next=f'add [on.{back_end.name}] with launch = "fork", or write launch under [on.CLUSTER]',
            )
        )
    for key in _NOT_EVERYWHERE:
        table, _, name = key.partition(".")
        value = getattr(getattr(job, table), name)
        if value and key not in can.honours:
            file, line = loaded.place(table, name)
            text = f"{key} has no meaning on {back_end.name} and is left out"
            given = list(value) if isinstance(value, tuple) else value
            findings.append(Finding(text, "info", "no-meaning", file=file, line=line, given=given))
    return findings


def _resources(loaded: LoadedJob, plan: Plan, back_end: Backend) -> list[Finding]:
    """Compare what is asked for with this machine, if it is the one that runs it."""
    if back_end.abilities.several_machines:
        return []
    request, cluster, findings = plan.step.request, loaded.cluster, []
    nodes = request.nodes + request.spare_nodes

    def say(key: str, text: str, rule: str, severity: str, given: Any, allowed: Any, what: str) -> None:
        file, line = loaded.place("need", key)
        findings.append(Finding(text, severity, rule, file=file, line=line, given=given, allowed=allowed, next=what))

    most = back_end.abilities.most_nodes
    if most is not None and nodes > most:
        text = f"{nodes} nodes with the spares are too many for one machine"
        allowed = f"at most {most}"
        say("nodes", text, "too-many-nodes", "error", nodes, allowed, "add [on.local] need = { nodes = 2 }")
    gpus = request.gpus_per_node * request.nodes
    if gpus > cluster.gpus:
        text = f"the job asks for {_count(gpus, 'GPU')} and this machine has {cluster.gpus or 'none'}"
        allowed = f"at most {cluster.gpus // request.nodes} per node"
        what = "add [on.local] need = { gpus_per_node = 0 }"
        say("gpus_per_node", text, "no-gpus", "error", request.gpus_per_node, allowed, what)
    memory = (request.memory_bytes or 0) * request.nodes
    if cluster.memory is not None and memory > cluster.memory:
        text = f"the job asks for {format_size(memory)} of memory and this machine has {format_size(cluster.memory)}"
        allowed = f"at most {format_size(cluster.memory / request.nodes)} per node"
        what = f'add [on.local] need = {{ memory = "{_mebibytes(cluster.memory / request.nodes / 2)}" }}'
        say("memory", text, "no-memory", "error", request.memory_bytes, allowed, what)
    cores = request.nodes * request.ranks_per_node * (request.cpus_per_rank or 1)
    if cluster.cores is not None and cores > cluster.cores:
        key = "cpus_per_rank" if request.cpus_per_rank else "nodes"
        text = f"the ranks ask for {_count(cores, 'core')} and this machine has {cluster.cores}: they take turns"
        what = "ask for fewer nodes or ranks; results stay right, only slower"
        say(key, text, "oversubscribed", "warn", cores, f"at most {cluster.cores}", what)
    return findings


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _mebibytes(size_bytes: float) -> str:
    return f"{max(1, int(size_bytes) >> 20)}MiB"
