"""How many nodes, GPUs, ranks, cores and bytes sbatch's options ask for, and the keys that ask for the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cordee.backends.job_scripts.body import is_of_vetting
from cordee.backends.job_scripts.launch import ScriptLaunch
from cordee.backends.job_scripts.options import (
    CARRY,
    EXPORTED,
    LAYOUT,
    OF_A_SHELL,
    OF_THE_STEP,
    SBATCH_OPTIONS,
    GivenOption,
    last_values,
    long_form,
)
from cordee.backends.job_scripts.render import duration_text, size_text
from cordee.backends.job_scripts.variables import needs_shell
from cordee.backends.slurm.sbatch.values import (
    read_count,
    read_gpus,
    read_gres,
    read_memory,
    read_nodes,
    read_signal,
    read_time,
)
from cordee.job.conversion import Left

_TEXTS = ("account", "partition", "qos", "constraint", "reservation")
_COUNTS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu")
_TOTALS = ("gpus", "gpus-per-node", "gpus-per-task")
_SIZES = ("mem", "mem-per-cpu", "mem-per-gpu")
_OF_STEP = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-task", "ntasks-per-gpu")
# What srun says where sbatch says nothing of the kind, as in a script that is not submitted.
_OF_JOB = (
    ("gpus", "gpus-per-node", "gres"),
    ("cpus-per-gpu",),
    _SIZES,
    *((name,) for name in (*_TEXTS, "time", "job-name")),
)
_MOST = 1_000_000
_MEMORY_UNKNOWN = "no size: a job that takes whole nodes has all their memory; others say [need] memory"
_FORMS = "not a form that could be read"


@dataclass
class RequestedLayout:
    """What the options ask for; numbers of one node, bytes, seconds. None is what nobody said.

    Attributes:
        fewest_nodes: less than `nodes` where a range was given.
        spare_nodes: that the job has and the command does not take.
        tasks: of one node, None where only the defaults of Slurm say so.
        cpus: of one node.
    """

    nodes: int = 1
    fewest_nodes: int = 1
    spare_nodes: int = 0
    tasks: int | None = None
    all_tasks: int | None = None
    gpus: int = 0
    model: str | None = None
    cpus: int | None = None
    cpus_per_task: int | None = None
    memory: int | None = None
    values: dict[str, GivenOption] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def text(self, name: str) -> str | None:
        """Return the value of an option."""
        return self.values[name].value if name in self.values else None

    def leave(self, name: str, why: str) -> None:
        """Note an option that is not carried over, or not wholly."""
        self.left.append(Left(self.values[name].line, long_form(self.values[name]), why))

    @property
    def known(self) -> dict[str, str]:
        """The variables that Slurm sets in the script, as far as the options say their values."""
        numbers = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.all_tasks,
            "SLURM_NPROCS": self.all_tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks if "ntasks-per-node" in self.values else None,
            "SLURM_CPUS_PER_TASK": self.cpus_per_task,
            "SLURM_GPUS_ON_NODE": self.gpus or None,
            "SLURM_GPUS_PER_NODE": self.gpus if "gpus-per-node" in self.values else None,
            "SLURM_JOB_NAME": self.text("job-name"),
        }
        return {name: str(value) for name, value in numbers.items() if value is not None}


def read_layout(given: list[GivenOption]) -> RequestedLayout:
    """Return what sbatch's options ask for; options with no key of their own are in `options` or `left`."""
    asked = RequestedLayout(values=last_values(given))
    for one in asked.values.values():
        if one.option and one.option.fate == CARRY:
            asked.options.append(long_form(one))
        elif one.option and one.option.fate != LAYOUT and one.option.fate != "drop":
            asked.left.append(Left(one.line, long_form(one), one.option.fate))
    _count(asked)
    _exclusive(asked)
    return asked


def with_step(asked: RequestedLayout, launch: ScriptLaunch, vetted: int | None) -> RequestedLayout:
    """Return what is asked for when srun's own options for the layout lie over sbatch's.

    Args:
        vetted: how many nodes a vetting wants, of which a step may ask for all that are fit.
    """
    own = last_values([one for one in launch.srun if one.name in _OF_STEP and not is_of_vetting(one.text)])
    # srun takes no more nodes than it has tasks.
    fewer = vetted or read_count((own["ntasks"].value or "") if "ntasks" in own else "")
    if fewer and "nodes" not in own and fewer < asked.nodes:
        own["nodes"] = GivenOption(SBATCH_OPTIONS["nodes"], str(fewer), "", launch.line)
    for kind in _OF_JOB:
        said = any(name in asked.values for name in kind)
        for name, one in last_values([one for one in launch.srun if one.name in kind]).items():
            if not said and not needs_shell(one.value or ""):
                own[name] = one
            elif one.value != asked.text(name) and one.value != "0":
                asked.left.append(Left(one.line, one.text, OF_THE_STEP if said else OF_A_SHELL))
    if launch.all_ranks and "ntasks" in asked.values:
        asked.values["ntasks"] = GivenOption(asked.values["ntasks"].option, launch.all_ranks, "", launch.line)
    if not own:
        return asked
    values = {**asked.values, **own}
    if "ntasks" in own and "ntasks-per-node" not in own:
        values.pop("ntasks-per-node", None)
    step = RequestedLayout(values=values)
    _count(step)
    step.options, step.left = asked.options, asked.left
    step.gpus, step.memory = max(step.gpus, asked.gpus), asked.memory or step.memory
    if "nodes" in asked.values:
        step.nodes = min(step.nodes, asked.nodes) if "nodes" in own else asked.nodes
        step.spare_nodes, step.fewest_nodes = asked.nodes - step.nodes, min(asked.fewest_nodes, step.nodes)
    step.cpus = max(filter(None, (step.cpus, asked.cpus)), default=None)
    return step


def _count(asked: RequestedLayout) -> None:
    counts = {name: _read(asked, name, read_count) for name in _COUNTS}
    gpus = {name: _read(asked, name, read_gpus) for name in _TOTALS}
    nodes = _read(asked, "nodes", read_nodes)
    tasks, per_node = counts["ntasks"], counts["ntasks-per-node"]
    gres, others = read_gres(asked.text("gres") or "")
    if "gres" in asked.values and gres is None and not others:
        asked.leave("gres", _FORMS)
    asked.options += [f"--gres={','.join(others)}"] if others else []
    on_node = gpus["gpus-per-node"] or gres
    if nodes:
        asked.fewest_nodes, asked.nodes = nodes
        if tasks and per_node:
            asked.fewest_nodes = min(asked.nodes, max(asked.fewest_nodes, -(-tasks // per_node)))
    elif tasks and per_node:
        asked.nodes = asked.fewest_nodes = -(-tasks // per_node)
    elif gpus["gpus"] and on_node and on_node[0]:
        asked.nodes = asked.fewest_nodes = -(-gpus["gpus"][0] // on_node[0])
    elif (tasks or 1) > 1:
        asked.leave("ntasks", "without --nodes Slurm may spread them; here they share one node: set nodes for more")
    asked.tasks = per_node or (-(-tasks // asked.nodes) if tasks else None)
    found = on_node or gpus["gpus"] or gpus["gpus-per-task"]
    if found:
        asked.model = found[1]
        whole = found[0] if on_node else 0
        if gpus["gpus"] and not on_node:
            whole = -(-found[0] // asked.nodes)
            if not nodes and whole > 1:
                asked.leave(
                    "gpus", "without --nodes Slurm may spread them; here they are on one node: set nodes for more"
                )
            if found[0] % asked.nodes:
                asked.leave("gpus", f"not the same on each of {asked.nodes} nodes: {whole} per node are asked for")
        elif gpus["gpus-per-task"] and not on_node:
            whole = found[0] * (asked.tasks or 1)
        asked.gpus = whole
    if counts["ntasks-per-gpu"] and asked.tasks is None:
        asked.tasks = counts["ntasks-per-gpu"] * max(asked.gpus, 1)
    asked.all_tasks = tasks or (asked.tasks * asked.nodes if asked.tasks else None)
    if tasks and asked.tasks and tasks != asked.tasks * asked.nodes and not per_node:
        asked.leave("ntasks", f"not the same on each of {asked.nodes} nodes: {asked.tasks} per node are started")
    asked.cpus_per_task = counts["cpus-per-task"]
    if asked.cpus_per_task:
        asked.cpus = asked.cpus_per_task * (asked.tasks or 1)
    elif counts["cpus-per-gpu"] and asked.gpus:
        asked.cpus = counts["cpus-per-gpu"] * asked.gpus
    _memory(asked)


def _memory(asked: RequestedLayout) -> None:
    shares = {"mem": 1, "mem-per-cpu": asked.cpus or asked.tasks or 1, "mem-per-gpu": asked.gpus}
    for name in _SIZES:
        if name not in asked.values:
            continue
        size = read_memory(asked.text(name) or "")
        if size is not None and shares[name]:
            asked.memory = size * shares[name]
        else:
            asked.leave(name, _MEMORY_UNKNOWN)


def _exclusive(asked: RequestedLayout) -> None:
    if "exclusive" in asked.values:
        asked.options.append(long_form(asked.values["exclusive"]))
    if "time" in asked.values and read_time(asked.text("time") or "") is None:
        asked.leave("time", "no length of time: without [need] time the partition's own limit holds")
    if "signal" in asked.values and read_signal(asked.text("signal") or "") is None:
        asked.leave("signal", _FORMS)
    export = asked.text("export")
    if export and not export.upper().startswith("ALL"):
        asked.leave("export", EXPORTED)


def _read(asked: RequestedLayout, name: str, reader: Any) -> Any:
    text = asked.text(name)
    if text is None:
        return None
    found = reader(text)
    if found is None and not any(one.line == asked.values[name].line and one.why == _FORMS for one in asked.left):
        asked.leave(name, _FORMS)
    return found


def need_keys(asked: RequestedLayout, launch: ScriptLaunch | None) -> tuple[dict[str, Any], list[Left]]:
    """Return [need] for a layout and the command that runs in it, with what differs."""
    left: list[Left] = []
    ranks = _ranks(asked, launch, left)
    need: dict[str, Any] = {"nodes": asked.nodes}
    if asked.fewest_nodes < asked.nodes:
        need["min_nodes"] = asked.fewest_nodes
        line = asked.values["nodes"].line
        left.append(
            Left(line, long_form(asked.values["nodes"]), f"{asked.nodes} are asked for; a run continues with fewer")
        )
    if asked.spare_nodes:
        need["spare_nodes"] = asked.spare_nodes
    if asked.gpus:
        need["gpus_per_node"] = asked.gpus
    need["ranks_per_node"] = ranks
    if asked.cpus:
        each, rest = divmod(asked.cpus, ranks if isinstance(ranks, int) else max(asked.gpus, 1))
        need["cpus_per_rank"] = max(each, 1)
        if rest or not each:
            line = launch.line if launch else 1
            left.append(
                Left(line, f"{asked.cpus} cores per node", "not a multiple of the ranks: cpus_per_rank is rounded")
            )
    if asked.memory:
        need["memory"] = size_text(asked.memory)
    if asked.model:
        need["gpu"] = f"model = {asked.model}"
    for key, value in list(need.items()):
        if isinstance(value, int) and value > _MOST:
            left.append(Left(launch.line if launch else 1, f"{key} = {value}", f"more than {_MOST}"))
            del need[key]
    seconds = read_time(asked.text("time") or "")
    if seconds:
        need["time"] = duration_text(seconds)
    need.update({name: asked.text(name) for name in _TEXTS if asked.text(name)})
    return need, left


def _ranks(asked: RequestedLayout, launch: ScriptLaunch | None, left: list[Left]) -> int | str:
    if launch is None:
        return 1
    if launch.ranks == "gpu":
        return "gpu" if asked.gpus else 1
    told = read_count(launch.ranks)
    if launch.ranks and told is None:
        why = (
            "not a number that could be read: one rank for each GPU"
            if asked.gpus
            else "not a number that could be read"
        )
        left.append(Left(launch.line, launch.ranks, why))
        return "gpu" if asked.gpus else 1
    if told:
        if launch.through == "srun" and (asked.tasks or 1) > 1 and launch.ranks != "1":
            why = f"srun would have started {asked.tasks} launchers on each node; one is meant"
            left.append(Left(launch.line, f"{asked.tasks} tasks per node", why))
        return told
    if launch.all_ranks:
        total = read_count(launch.all_ranks) or asked.all_tasks or 1
        return -(-total // asked.nodes)
    if launch.through == "shell":
        if asked.nodes > 1:
            why = "runs on the first node alone there; here one rank starts on every node"
            left.append(Left(launch.line, launch.source, why))
        return 1
    return asked.tasks or 1


def stop_keys(values: Mapping[str, GivenOption]) -> dict[str, str]:
    """Return the keys of [checkpoint] that `--signal` stands for."""
    found = read_signal(values["signal"].value or "") if "signal" in values else None
    if found is None:
        return {}
    name, seconds, only_shell = found
    return {"grace": duration_text(seconds), **({} if only_shell else {"signal": name})}
