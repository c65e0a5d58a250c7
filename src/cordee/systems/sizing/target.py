"""What a plan is made of: a file of sizes, a function, a script or a job document, and the GPUs of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.errors import DocumentError, UsageError
from cordee.core.ports.speeds import SPEEDS, MeasuredSpeeds
from cordee.core.registry import offered
from cordee.core.words import did_you_mean
from cordee.job.cluster import load_cluster
from cordee.job.command import interpreter_path, read_command, which
from cordee.job.load import FILE_NAME, LoadedJob, load_job
from cordee.job.plan.placement import place
from cordee.job.plan_table import PlanTable
from cordee.job.profile import ClusterProfile
from cordee.job.terminal.options import cluster_name
from cordee.systems.sizing.architecture import read_architecture
from cordee.systems.sizing.cache import digest_of, keep_trace, known_trace
from cordee.systems.sizing.costs.goal import read_goal
from cordee.systems.sizing.costs.host_memory import KEPT_CHECKPOINTS
from cordee.systems.sizing.counted import sizes_of
from cordee.systems.sizing.devices import PlannedGpu, as_measured, device_of, device_of_partition
from cordee.systems.sizing.layouts import Model, refusal_of
from cordee.systems.sizing.parallelism import SCHEDULES, Layout
from cordee.systems.sizing.plan import SizedPlan, make_plan_of
from cordee.systems.sizing.trace.run import trace
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

_SIZES = {name: range(1, 65537) for name in ("dp", "fsdp", "tp", "pp", "ep", "cp", "interleaved")} | {"zero": range(3)}
_WORKLOAD = tuple(PlanTable.model_fields.keys() & Workload.__dataclass_fields__.keys())
# What a script decides by itself.
_OF_SCRIPTS = (
    "task", "precision", "sequence", "checkpointing", "offload_activations", "lora_rank", "step_in_backward", "chunked_loss",
)  # fmt: skip


@dataclass(frozen=True)
class TraceTarget:
    """Something that can be traced: a function of a file, or a script with its arguments; `python` runs it in `folder`."""

    path: Path
    function: str
    argv: tuple[str, ...]
    python: str
    folder: Path


def plan_target(target: str, cluster: str | None, given: Mapping[str, Any], *, no_run: bool = False) -> SizedPlan:
    """Return the plan of a target of the command line.

    Args:
        given: options by their names; None: not given.
        no_run: run nothing of the user's.

    Raises:
        CordeeError: it cannot be read, traced, or is refused; says why.
    """
    path, _, function = target.rpartition(":") if ".py:" in target else (target, "", "")
    path = path or target
    loaded = None
    if _is_job(Path(path)):
        loaded = load_job(path, cluster=cluster)
    elif not Path(path).is_file():
        allowed = "a config.json, a TOML table [model], FILE.py:NAME, a script, or a folder with a cordee.toml"
        raise UsageError("there is no such target", given=target, allowed=allowed)
    table = loaded.job.plan if loaded else PlanTable()
    profile = loaded.cluster if loaded else load_cluster(cluster_name(cluster))
    on_gpu = not loaded or bool(loaded.job.need.gpus_per_node)
    workload = workload_of(table, given, on_gpu=on_gpu)
    device = _device(given, profile, loaded)
    goal = read_goal(given["goal"]) if given.get("goal") else None
    if loaded:
        model = model_of(loaded, workload, no_run=no_run)
        if model is None:
            hint = 'set [plan] model = "config.json", or leave out --no-run'
            raise UsageError("nothing is known of the job's model without running it", given="--no-run", next=hint)
    elif Path(path).suffix == ".py":
        if no_run:
            raise UsageError(
                "a function or script is known by running it only",
                given=f"{target} --no-run",
                next="give its config.json",
            )
        where = Path(path).absolute()
        if not function:
            _refuse_options_of_scripts(given)
        model = traced(TraceTarget(where, function, (), sys.executable, where.parent), workload, gpu=on_gpu)
    else:
        model = sizes_of(Path(path), None if no_run else sys.executable)
    gpus = given.get("gpus")
    layout = layout_of(loaded, given.get("strategy") or table.strategy, model, gpus) if loaded else None
    if given.get("layout"):
        there = gpus or (layout.gpus if layout and on_gpu else None)
        layout = read_layout(given["layout"])
        _refuse_other_count(given["layout"], layout, there)
    if layout is not None and (why := refusal_of(model, workload, layout)):
        raise UsageError(
            "this layout cannot be",
            given=layout.name,
            allowed=why,
            next="leave out --layout: those that can be are ranked",
        )
    if loaded and isinstance(model, TracedModel) and not loaded.job.plan.model:
        _refuse_options_of_scripts(given)
    kept = loaded.job.checkpoint.keep if loaded and loaded.job.checkpoint else KEPT_CHECKPOINTS
    return make_plan_of(model, workload, device, layout, gpus, goal, kept)


def _refuse_other_count(text: str, layout: Layout, gpus: int | None) -> None:
    """Refuse a layout for more or fewer GPUs than there are.

    Raises:
        UsageError: it is one.
    """
    if gpus is None or layout.gpus == gpus:
        return
    hint = f"plan for so many: --gpus {layout.gpus}"
    if gpus % layout.gpus == 0 and layout.dp == 1:
        hint += f"; or use all: --layout {text},dp={gpus // layout.gpus}"
    raise UsageError(
        f"this layout is for {layout.gpus} GPUs, and there are {gpus}",
        given=text,
        allowed=f"sizes whose product is {gpus}",
        next=hint,
    )


def _refuse_options_of_scripts(given: Mapping[str, Any]) -> None:
    """Refuse options that would change nothing of a script, which is traced as it is.

    Raises:
        UsageError: there is one.
    """
    for name in _OF_SCRIPTS:
        if given.get(name) is not None:
            raise UsageError(
                "a script decides this by itself, and is traced as it is",
                given="--" + name.replace("_", "-"),
                next="give a function that returns (model, inputs) (FILE.py:NAME), or change the script",
            )


def _is_job(path: Path) -> bool:
    return path.is_dir() or path.name == FILE_NAME


def workload_of(table: PlanTable, given: Mapping[str, Any] | None = None, *, on_gpu: bool = True) -> Workload:
    """Return what is done with a model: options before the job's table."""
    chosen = {name: (given or {}).get(name) for name in _WORKLOAD}
    values = {name: getattr(table, name) if value is None else value for name, value in chosen.items()}
    rank = (given or {}).get("lora_rank") or table.lora_rank
    return Workload(**values, rank=rank, on_gpu=on_gpu)


def _device(given: Mapping[str, Any], profile: ClusterProfile, loaded: LoadedJob | None) -> PlannedGpu | None:
    """Return the GPUs that are meant: of the options, else of the partition that the job goes to."""
    if given.get("gpu") or given.get("gpu_memory"):
        found = device_of(given.get("gpu") or "GPU", profile, given.get("gpu_memory"))
    else:
        partition = _partition_device(profile, loaded)
        if partition is None:
            return None
        found = partition
    changed = {"per_node": given["per_node"]} if given.get("per_node") else {}
    measured: MeasuredSpeeds | None = offered(SPEEDS)
    speeds = measured(profile.vetting.history) if measured else {}
    return as_measured(replace(found, **changed), speeds)


def _partition_device(profile: ClusterProfile, loaded: LoadedJob | None) -> PlannedGpu | None:
    if loaded is not None:
        if not loaded.job.need.gpus_per_node:
            return None
        placement = place(loaded.job.need, profile)
        return device_of_partition(profile, placement.facts, placement.gpu_type)
    devices = [device_of_partition(profile, partition, None) for partition in profile.partitions.values()]
    known = [one for one in devices if one is not None]
    return max(known, key=lambda one: one.most or 0) if known else None


def layout_of(loaded: LoadedJob, strategy: str | None, model: Model, gpus: int | None = None) -> Layout:
    """Return how a job's ranks divide the model, one rank for each of its GPUs: as is said, or as its script was seen to do it.

    Args:
        gpus: as many as are planned for; None: those of the job.
    """
    need = loaded.job.need
    each = max(1, need.gpus_per_node or (need.ranks_per_node if isinstance(need.ranks_per_node, int) else 1))
    ranks = gpus or each * need.nodes
    strategy = strategy or (model.strategy if isinstance(model, TracedModel) else "") or "ddp"
    if strategy == "fsdp":
        return Layout(fsdp=ranks)
    if strategy == "hsdp":
        return Layout(dp=max(1, ranks // each), fsdp=min(each, ranks))
    return Layout(dp=ranks, zero={"zero1": 1, "zero2": 2}.get(strategy, 0))


def read_layout(text: str) -> Layout:
    """Return a layout as it is written: `fsdp=8,tp=4`.

    Raises:
        UsageError: it is none; names what is wrong.
    """
    sizes: dict[str, Any] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if name in sizes:
            raise UsageError(
                "a size is given twice", given=text, allowed=f"{name} once", next="write it as fsdp=8,tp=4"
            )
        if name == "schedule" and size in SCHEDULES:
            sizes[name] = size
            continue
        allowed = _SIZES.get(name, range(0))
        if not size.isdigit() or int(size) not in allowed:
            known = name in _SIZES
            hint = "write it as fsdp=8,tp=4"
            hint = "ZeRO 3 is fsdp=N" if name == "zero" else hint if known else did_you_mean(name, list(_SIZES), hint)
            raise UsageError(
                "this is no layout",
                given=part,
                allowed=", ".join(
                    [*(f"{one}=N" for one in _SIZES), f"schedule={' | '.join(SCHEDULES)}; zero is 0, 1 or 2"]
                ),
                next=hint,
            )
        sizes[name] = int(size)
    return Layout(**sizes)


def target_of(loaded: LoadedJob) -> TraceTarget | Path | None:
    """Return what tells of a job's model: a file of sizes, or what can be traced; None: nothing is known."""
    table, folder = loaded.job.plan, loaded.folder
    if table.model is not None:
        path, _, function = table.model.rpartition(":") if ".py:" in table.model else (table.model, "", "")
        file = folder / (path or table.model)
        if not file.is_file():
            document, line = loaded.place("plan", "model")
            raise DocumentError("there is no such file", file=document, line=line, given=table.model)
        return TraceTarget(file, function, (), _python(loaded), folder) if file.suffix == ".py" else file
    facts = read_command(loaded.job, loaded.values.get("run"), folder)
    if facts.script is None or facts.undeclared or not (folder / facts.script).is_file():
        return None
    words = list(loaded.job.run)
    argv = tuple(words[words.index(facts.script) + 1 :]) if facts.script in words else ()
    return TraceTarget(folder / facts.script, "", argv, _python(loaded), folder)


def _python(loaded: LoadedJob) -> str:
    """Return the Python of a job's ranks, this one where it cannot be told."""
    job = loaded.job
    environ = {**os.environ, **job.env}
    found = which("python3", tuple(interpreter_path(environ)), environ, loaded.folder)
    first = job.run[0]
    if Path(first).name.startswith("python"):
        found = which(first, tuple(interpreter_path(environ)), environ, loaded.folder) or found
    return found or sys.executable


def known_model(loaded: LoadedJob, workload: Workload) -> Model | None:
    """Return what is known of a job's model without running anything: its sizes, or what was traced before.

    Raises:
        DocumentError: the file that `[plan] model` names is wrong.
    """
    target = target_of(loaded)
    if target is None or isinstance(target, Path):
        return None if target is None else read_architecture(target)
    return known_trace(_digest(target, workload, gpu=bool(loaded.job.need.gpus_per_node)))


def model_of(loaded: LoadedJob, workload: Workload, *, no_run: bool) -> Model | None:
    """Return a job's model, traced where its sizes are not given."""
    target = target_of(loaded)
    if isinstance(target, Path):
        return sizes_of(target, None if no_run else _python(loaded))
    if no_run:
        return known_model(loaded, workload)
    if target is None:
        raise UsageError(
            "the job's command runs no Python script that could be traced",
            given=" ".join(loaded.job.run),
            next='set [plan] model = "config.json" or "FILE.py:NAME"',
        )
    if loaded.job.environment:
        raise UsageError(
            "the job runs in a container, where nothing is traced",
            given=loaded.job.environment,
            next='set [plan] model = "config.json", or trace inside: `cordee env run ENV -- cordee plan FILE.py:NAME`',
        )
    return traced(target, workload, gpu=bool(loaded.job.need.gpus_per_node))


def traced(target: TraceTarget, workload: Workload, *, gpu: bool) -> Model:
    """Return what a target's step allocates, from the cache where nothing of it has changed."""
    digest = _digest(target, workload, gpu=gpu)
    found = known_trace(digest)
    if found is None:
        found = trace(
            target.path, target.function, target.argv, workload, python=target.python, folder=target.folder, gpu=gpu
        )
        keep_trace(digest, found)
    return found


def _digest(target: TraceTarget, workload: Workload, *, gpu: bool) -> str:
    return digest_of(target.path, target.function, target.argv, workload, target.python, target.folder, gpu)
