"""What is worth saying about a plan before it runs: what would fail, what would be lost, what is not honoured."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from pathlib import Path

from cordee.findings import Finding
from cordee.plan.interpreter import which
from cordee.plan.model import Plan
from cordee.plan.script import Script, read_script, script_of
from cordee.spec.load import LoadedJob
from cordee.units import format_size

_MOST_LOCAL_NODES = 64
_SHELL_WORDS = re.compile(r"^(\||\|\||&&|&|;|<|>|>>|2>|2>&1|&>)$|\$\(|`|^\$\{?\w+|^~/|[^\\][*?]")
_UNDECLARED = re.compile(r"\{([A-Za-z_]\w*)\}")


def examine(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Return the findings on a plan, the errors first."""
    findings = [
        *_not_honoured(loaded, plan),
        *_command(loaded, plan),
        *_resources(loaded, plan),
        *_checkpoints(loaded, plan),
    ]
    order = {"error": 0, "warn": 1, "info": 2}
    return sorted(findings, key=lambda finding: order[finding.severity])


def _finding(loaded: LoadedJob, keys: tuple[str, ...], text: str, rule: str, severity: str = "error", **more: object) -> Finding:
    return Finding(text, severity, rule, file=str(loaded.path), line=loaded.line_of(*keys), **more)  # type: ignore[arg-type]


def _not_honoured(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse by name what this version or back end cannot do."""
    job, findings = loaded.job, []
    refused = {
        ("environment",): job.environment is not None,
        ("data",): bool(job.data),
        ("sweep",): bool(job.sweep),
        ("steps",): bool(job.steps),
        ("test",): job.test is not None,
        ("vet", "protocol"): job.vet.protocol is not None,
    }
    for keys, given in refused.items():
        if given:
            text = f"{'.'.join(keys)} is a valid key that this version cannot honour"
            findings.append(_finding(loaded, keys, text, "not-honoured", next=f"remove {'.'.join(keys)} for now"))
    if plan.backend == "local":
        if job.launch == "srun":
            text = 'launch = "srun" needs Slurm'
            findings.append(_finding(loaded, ("launch",), text, "not-honoured", given="srun", allowed='"fork" on local', next="set it under [on.CLUSTER]"))
        idle = [key for key in ("account", "partition", "qos", "constraint", "reservation") if getattr(job.need, key)]
        findings += [
            _finding(loaded, ("need", key), f"need.{key} has no meaning on local and is left out", "no-meaning", "info")
            for key in idle
        ]
        if job.slurm.options:
            findings.append(_finding(loaded, ("slurm",), "slurm.options has no meaning on local and is left out", "no-meaning", "info"))
    else:
        text = f"this version cannot submit to {plan.backend}"
        findings.append(Finding(text, "error", "not-honoured", given=loaded.cluster.name, allowed="local", next="use `--on local`"))
    return findings


def _command(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    job, findings = loaded.job, []
    argv = job.run
    tasks = plan.step.tasks
    path = which(argv[0], list(tasks.path_prepend), {**os.environ, **job.env}, loaded.folder)
    if path is None:
        severity = "warn" if job.setup and "/" not in argv[0] else "error"
        text = f"the command {argv[0]!r} is not on PATH"
        allowed, what = "a command on PATH, or a path of an executable file", "install it, or give its path"
        file = loaded.folder / argv[0]
        if "/" in argv[0]:
            text = f"{argv[0]} is not executable" if file.is_file() else f"there is no file {argv[0]}"
            what = f"`chmod +x {shlex.quote(argv[0])}`, or put its interpreter in front" if file.is_file() else "correct the path"
        findings.append(_finding(loaded, ("run",), text, "no-command", severity, given=argv[0], allowed=allowed, next=what))
    script = script_of(argv)
    if script is not None and not (loaded.folder / script).is_file():
        names = [str(found.relative_to(loaded.folder)) for found in loaded.folder.glob("*.py")]
        near = difflib.get_close_matches(script, names, n=1)
        findings.append(
            _finding(
                loaded, ("run",), f"there is no script {script}", "no-script", given=script,
                allowed=names or "a script in the job's folder", next=f"did you mean {near[0]!r}?" if near else "correct `run`",
            )
        )  # fmt: skip
    shell = [word for word in argv if _SHELL_WORDS.search(word)]
    if shell and Path(argv[0]).name not in ("bash", "sh", "zsh"):
        text = f"no shell runs the command, so {shell[0]!r} is passed on as it is"
        wanted = shlex.join(argv).replace("'", "")
        findings.append(_finding(loaded, ("run",), text, "shell-words", "warn", given=shell[0], next=f'run = ["bash", "-c", "{wanted}"]'))
    undeclared = sorted({name for word in argv for name in _UNDECLARED.findall(word)} - set(job.sweep))
    if undeclared:
        text = f"{{{undeclared[0]}}} is not declared under [sweep] and stays as it is"
        findings.append(_finding(loaded, ("run",), text, "undeclared-name", "warn", given=undeclared))
    if Path(argv[0]).name == "torchrun" and plan.step.request.nodes > 1 and not any(word.startswith("--nnodes") for word in argv):
        text = "torchrun without --nnodes trains on each node by itself"
        what = f"run the script itself (`python ...`, ranks_per_node = N), or add --nnodes {plan.step.request.nodes} --node-rank and --master-addr"
        findings.append(_finding(loaded, ("run",), text, "torchrun-alone", "warn", given="torchrun", next=what))
    return findings


def _resources(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    if plan.backend != "local":
        return []
    request, cluster, findings = plan.step.request, loaded.cluster, []
    nodes = request.nodes + request.spare_nodes
    if nodes > _MOST_LOCAL_NODES:
        text = f"{nodes} nodes on one machine are more than {_MOST_LOCAL_NODES}"
        findings.append(_finding(loaded, ("need", "nodes"), text, "too-many-nodes", given=nodes, allowed=f"1 to {_MOST_LOCAL_NODES}", next="[on.local] need = { nodes = 2 }"))
    gpus = request.gpus_per_node * request.nodes
    if gpus > cluster.gpus:
        text = f"{gpus} GPUs are asked for and this machine has {cluster.gpus}"
        findings.append(_finding(loaded, ("need", "gpus_per_node"), text, "no-gpus", given=request.gpus_per_node, allowed=f"at most {cluster.gpus // request.nodes} per node", next="[on.local] need = { gpus_per_node = 0 }"))
    memory = (request.memory_bytes or 0) * request.nodes
    if cluster.memory is not None and memory > cluster.memory:
        text = f"{format_size(memory)} of memory are asked for and this machine has {format_size(cluster.memory)}"
        findings.append(_finding(loaded, ("need", "memory"), text, "no-memory", given=request.memory_bytes, allowed=f"at most {format_size(cluster.memory / request.nodes)} per node", next='[on.local] need = { memory = "1GB" }'))
    ranks = request.nodes * request.ranks_per_node * (request.cpus_per_rank or 1)
    if cluster.cores is not None and ranks > cluster.cores:
        text = f"the ranks ask for {ranks} cores and this machine has {cluster.cores}: they take turns"
        findings.append(_finding(loaded, ("need",), text, "oversubscribed", "warn", given=ranks, allowed=cluster.cores))
    return findings


def _checkpoints(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    checkpoint, findings = plan.step.checkpoint, []
    name = script_of(loaded.job.run)
    script = read_script(loaded.folder / name) if name else Script()
    if checkpoint.resume is None and not script.uses_checkpointer and "CORDEE_RESUME_FROM" not in script.text:
        options = [option for option in script.options if "resume" in option or "checkpoint" in option or "ckpt" in option]
        what = 'save with cordee.checkpointer(...), or add [checkpoint] with path, pattern and resume = "--resume {checkpoint}"'
        if options:
            what = f'add [checkpoint] with path, pattern and resume = "{options[0]} {{checkpoint}}"'
        findings.append(
            _finding(loaded, ("checkpoint",), "a restart begins at zero: nothing says how to go on from a checkpoint", "restart-from-zero", "warn", next=what)
        )
    if checkpoint.ignore:
        names = sorted(checkpoint.ignore)
        text = f"{len(names)} checkpoints of earlier runs lie in {checkpoint.path}; this run does not go on from them"
        findings.append(_finding(loaded, ("checkpoint", "path"), text, "earlier-checkpoints", "info", given=names[-1], next="`cordee resume RUN` goes on with an earlier run"))
    return findings
