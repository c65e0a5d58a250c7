"""Options for sbatch that would undo what the plan says: refused by name, with the key to use instead."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cordee.core.findings import Finding
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan

_NODES, _RANKS, _CORES = "[need] nodes", "[need] ranks_per_node", "[need] cpus_per_rank"
_MEMORY, _GPUS, _LOGS = "[need] memory", "[need] gpus_per_node", "nothing: `cordee logs` shows what the ranks print"
_NOTHING = "nothing: Cordée sets it itself"
_CHAIN = "`requeue` in the cluster's profile"
_INSTEAD = {
    "nodes": _NODES,
    "ntasks": _RANKS,
    "ntasks-per-node": _RANKS,
    "ntasks-per-gpu": _RANKS,
    "ntasks-per-core": _RANKS,
    "ntasks-per-socket": _RANKS,
    "cpus-per-task": _CORES,
    "cpus-per-gpu": _CORES,
    "mincpus": _CORES,
    "mem": _MEMORY,
    "mem-per-cpu": _MEMORY,
    "mem-per-gpu": _MEMORY,
    "gpus": _GPUS,
    "gpus-per-node": _GPUS,
    "gpus-per-task": _GPUS,
    "gpus-per-socket": _GPUS,
    "time": "[need] time",
    "time-min": "[need] time",
    "account": "[need] account",
    "partition": "[need] partition",
    "qos": "[need] qos",
    "constraint": "[need] constraint",
    "reservation": "[need] reservation",
    "job-name": "name",
    "environment": "environment",
    "chdir": "nothing: ranks work in the job's folder",
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": _LOGS,
    "input": "run, with the file as an argument",
    "array": "[sweep], or one run for each",
    "signal": "[checkpoint] grace and signal",
    "comment": _NOTHING,
    "requeue": _CHAIN,
    "no-requeue": _CHAIN,
    "no-kill": _NOTHING,
    "export": "[env]",
    "export-file": "[env]",
    "get-user-env": "setup",
    "wrap": "run",
    "parsable": _NOTHING,
    "quiet": _NOTHING,
    "wait": _NOTHING,
    "test-only": "`cordee check`",
    "clusters": "--on CLUSTER",
    "uid": _NOTHING,
    "gid": _NOTHING,
}
_SHORT = {
    **{"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "A": "account", "p": "partition"},
    **{"q": "qos", "C": "constraint", "J": "job-name", "D": "chdir", "o": "output", "e": "error", "i": "input"},
    **{"a": "array", "k": "no-kill", "W": "wait", "Q": "quiet", "M": "clusters"},
}


def examine_options(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Return an error for every option in `[slurm] options` that Cordée sets itself, or that is none."""
    saying = JobFindings(loaded)
    for option in plan.step.request.scheduler.options:
        try:
            words = shlex.split(option)
        except ValueError as error:
            words, fault = [], f"cannot be split into words: {str(error).lower()}"
        else:
            fault = "" if words and words[0].startswith("-") and "\n" not in option else "is no option for sbatch"
        if fault:
            allowed = 'options as in "--exclude=n3" or "--mail-type=END"'
            saying.error("slurm.options", "bad-option", f"{option!r} {fault}", given=option, allowed=allowed)
        for name, word in _named(words):
            if name in _INSTEAD:
                saying.error(
                    "slurm.options",
                    "own-option",
                    f"{word} would undo what the plan says",
                    given=option,
                    allowed="options that Cordée does not set itself",
                    next=f"use {_INSTEAD[name]}",
                )
    return saying.findings


def _named(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (long name, word) of the options among the words; unique beginnings of a long name mean it, as for sbatch."""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            if name == "gres" and any(part.split(":")[0] == "gpu" for part in value.split(",")):
                name = "gpus-per-node"
            longer = [known for known in _INSTEAD if known.startswith(name)] if len(name) > 3 else []
            yield (name if name in _INSTEAD or len(longer) != 1 else longer[0]), word
        elif word.startswith("-") and len(word) > 1:
            yield _SHORT.get(word[1], ""), word
