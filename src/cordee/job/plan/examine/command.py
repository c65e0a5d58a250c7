"""Whether the command of a job can start, means what it says, and learns of its world what it expects."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path, PurePath

from cordee.client.variables import DISTRIBUTED, WORLD
from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean, nearest
from cordee.job.command import CommandFacts, commands_on_path
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.job.scripts import read_script

# What every rank has, set to another value than that of a variable.
_OWN_RANKS = re.compile(
    r"\b(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE)=(?!\"?\$\{?\w+\}?\"?(?:\s|;|&|\Z))"
)
_MOST_NAMES = 12
_MPI_LAUNCHERS = ("mpirun", "mpiexec", "srun")


_INSTEAD = {
    "MASTER_ADDR": "remove it; network_interface in the cluster's profile chooses the network between nodes",
    "MASTER_PORT": "remove it: every attempt gets a free port",
}
_JOINS = "torch.distributed.init_process_group"


def examine_command(loaded: LoadedJob, plan: Plan, command: CommandFacts) -> list[Finding]:
    """Return the findings on `run` and `setup`; what lies in an image is not looked for here."""
    environment = loaded.job.environment
    workdir = plan.step.environment.document["workdir"] if plan.step.environment else None
    return [
        *([] if environment else _executable(loaded, command)),
        *([] if environment and workdir else _script(loaded, command)),
        *_shell(loaded, command),
        *_own_ranks(loaded),
        *_parameters(loaded, command),
        *_launcher(loaded, plan),
    ]


def _executable(loaded: LoadedJob, of: CommandFacts) -> list[Finding]:
    job = loaded.job
    command = job.run[0]
    if of.executable or (of.shell and "=" in command):
        return []
    file, line = loaded.place("run")
    path = loaded.folder / command
    severity, allowed = "error", "a command on PATH, or the path of an executable file"
    if "/" not in command:
        text = f"the command {command} is not on PATH"
        prepend = () if "PATH" in job.env else of.path_prepend
        names = commands_on_path(prepend, {**os.environ, **job.env})
        what = did_you_mean(command, names, f"install {command}, or give its path", 0.75)
        if (loaded.folder / command).is_file():
            what = f"write ./{command}: the job's folder is not on PATH"
        if job.setup:
            severity, what = "warn", "nothing, if a line of `setup` brings it"
    elif os.path.isfile(path):
        text = f"{command} is not executable"
        what = f"chmod +x {shlex.quote(command)}, or put its interpreter in front of it"
    elif os.path.isdir(path):
        text, what = f"{command} is a folder", "name the command in it"
    else:
        text = f"there is no file {command}"
        near = nearest(path.name, _names(path.parent))
        what = f"did you mean {PurePath(command).with_name(near)}?" if near else "correct the path"
    rule = "no-command"
    return [Finding(text, severity, rule, file=file, line=line, given=command, allowed=allowed, next=what)]


def _script(loaded: LoadedJob, command: CommandFacts) -> list[Finding]:
    script = command.script
    if script is None or script == loaded.job.run[0]:
        return []
    path = loaded.folder / script
    if path.is_file() or (path / "__main__.py").is_file():
        return []
    file, line = loaded.place("run")
    names = sorted({*_scripts(path.parent), *_scripts(loaded.folder)})
    near = nearest(path.name, names)
    if path.is_dir():
        text, what = f"{script} is a folder without a __main__.py", "name the script in it"
    elif _dangling(path):
        text, what = f"{script} is a link that leads nowhere", "correct the link"
    else:
        text = f"there is no script {script} in {loaded.folder}"
        what = f"did you mean {near}?" if near else "correct `run`; paths begin in the folder of the document"
    allowed = names[:_MOST_NAMES] or "a script below the job's folder"
    return [Finding(text, "error", "no-script", file=file, line=line, given=script, allowed=allowed, next=what)]


def _shell(loaded: LoadedJob, command: CommandFacts) -> list[Finding]:
    if not command.shell:
        return []
    file, line = loaded.place("run")
    run, (word, meaning) = loaded.values.get("run"), command.shell[0]
    text = f"no shell runs the command: {word}, which {meaning} in a shell, is passed on as it is"
    what = f"run = {_toml_list(['bash', '-c', str(run)])}, or quote {word} if it is meant"
    allowed = "a command and its arguments"
    if meaning == "sets a variable":
        name, _, value = word.partition("=")
        what = f"remove it and add [env] {name} = {_toml_text(value)}"
    return [Finding(text, "warn", "shell-syntax", file=file, line=line, given=word, allowed=allowed, next=what)]


def _own_ranks(loaded: LoadedJob) -> list[Finding]:
    """A shell that finds the first node by itself hides the one that Cordée names, at a port that nobody else knows."""
    if PurePath(loaded.job.run[0]).name not in ("bash", "sh"):
        return []
    names = list(dict.fromkeys(_OWN_RANKS.findall(" ".join(loaded.job.run))))
    if not names:
        return []
    file, line = loaded.place("run")
    shown, them = ", ".join(names), "them" if len(names) > 1 else "it"
    text = f"the command sets {shown} itself, over the value that every rank has: ranks may not find each other"
    what = f"take {them} out: every rank has {them}"
    return [Finding(text, "warn", "own-ranks", file=file, line=line, given=shown, next=what)]


def _parameters(loaded: LoadedJob, command: CommandFacts) -> list[Finding]:
    declared, names = loaded.job.parameters, command.undeclared
    if not names or loaded.job.run[0] in ("bash", "sh"):
        return []
    file, line = loaded.place("run")
    shown = ", ".join(f"{{{name}}}" for name in sorted(names))
    text = f"{shown} stays as it is: only what [sweep] declares is filled in"
    near = [match for name in sorted(names) if (match := nearest(name, declared))]
    what = f"did you mean {{{near[0]}}}?" if near else "declare it under [sweep], or leave it if it is meant"
    allowed = sorted(declared) or "names of [sweep]"
    return [Finding(text, "info", "undeclared-name", file=file, line=line, given=shown, allowed=allowed, next=what)]


def _launcher(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """A launcher starts on every node: that it leads to one world, and not to one for each node, must be said."""
    nodes = plan.step.request.nodes
    words = " ".join(loaded.job.run).split()
    names = [PurePath(word).name for word in words]
    if nodes == 1:
        return []
    if "--standalone" in words and ("torchrun" in names or "torch.distributed.run" in words):
        given, what = "--standalone", "remove --standalone: Cordée tells torchrun the nodes and where they meet"
        allowed = "torchrun with nothing but --nproc-per-node, or the script itself"
    elif "accelerate" in names and not any(word.startswith(("--num_machines", "--config_file")) for word in words):
        given, what = (
            "accelerate",
            "run the script itself (`python train.py`, ranks_per_node = N): it finds the same world",
        )
        allowed = "accelerate with --num_machines and --machine_rank, or the script itself"
    elif names[0] in _MPI_LAUNCHERS:
        given, what = words[0], 'write the program alone, and launch = "srun": srun starts all its ranks'
        allowed = "the program itself"
    else:
        return []
    file, line = loaded.place("run")
    text = f"{given} on {nodes} nodes: each would start a world of its own, {nodes} in all"
    return [Finding(text, "warn", "launcher-alone", file=file, line=line, given=given, allowed=allowed, next=what)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _scripts(folder: Path) -> list[str]:
    return [name for name in _names(folder) if name.endswith(".py")]


def _dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _toml_text(text: str) -> str:
    return (
        "'" + text + "'"
        if '"' in text and "'" not in text
        else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _toml_list(texts: list[str]) -> str:
    return "[" + ", ".join(_toml_text(text) for text in texts) + "]"


def examine_world(loaded: LoadedJob, plan: Plan, command: CommandFacts) -> list[Finding]:
    """Return the findings on variables of the world in `[env]`, and on a script that wants a world and gets none."""
    saying = JobFindings(loaded)
    told = {name for name in WORLD if name not in plan.step.tasks.untold}
    told.update(abilities(plan.backend).rank_variables)
    for name, value in loaded.job.env.items():
        if name in told:
            text = f"{name} of [env] cannot be used: Cordée sets it for every rank"
            what = _INSTEAD.get(name, "remove it")
            saying.error(f"env.{name}", "not-honoured", text, given=f"{name}={value}", next=what)
    _no_world(loaded, plan, command, saying)
    return saying.findings


def _no_world(loaded: LoadedJob, plan: Plan, command: CommandFacts, saying: JobFindings) -> None:
    """Say that a script which does not ask whether there is a world will find none."""
    name = command.script
    if not plan.step.tasks.untold or name is None or command.launches:
        return
    script = read_script(loaded.folder / name, loaded.folder)
    wanted = sorted(script.needs & set(DISTRIBUTED) - set(loaded.job.env))
    if _JOINS in script.calls and "RANK" not in loaded.job.env:
        wanted = wanted or ["RANK"]
    if wanted and not script.asks & set(DISTRIBUTED):
        text = f"the script wants {wanted[0]}, which one rank without GPUs does not get"
        what = "add ranks_per_node = 1 to [need]: a number that is given makes a world, also of one rank"
        saying.warn("need.ranks_per_node", "no-world", text, given=name, next=what)
