"""From an sbatch script to what a job document says, with a list of what it cannot say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cordee.backends.job_scripts.body import SETS, ScriptBody, read_body
from cordee.backends.job_scripts.launch import (
    ScriptLaunch,
    choose_launch,
    command_of,
    dropped_options,
    read_launch,
    used_setup,
)
from cordee.backends.job_scripts.options import (
    DROP,
    LAYOUT,
    exported,
    last_values,
    long_form,
    option_table,
    parse_options,
)
from cordee.backends.job_scripts.text import is_shell, read_script_text
from cordee.backends.job_scripts.variables import Variables, needs_shell, plain_text, unquoted
from cordee.backends.slurm.sbatch.directives import read_directives
from cordee.backends.slurm.sbatch.layout import RequestedLayout, need_keys, read_layout, stop_keys, with_step
from cordee.backends.slurm.sbatch.values import read_count
from cordee.core.documents.faults import fault_error
from cordee.job.command import launches_itself
from cordee.job.conversion import Conversion, Left
from cordee.job.scripts import read_script

ENDINGS = (".sbatch", ".slurm", ".sh", ".job", ".bash", ".batch", ".sub", ".slm", ".cmd")
_OF_RANKS = {
    "MASTER_ADDR": "$MASTER_ADDR",
    "MASTER_PORT": "$MASTER_PORT",
    "SLURM_PROCID": "$RANK",
    "SLURM_NODEID": "$GROUP_RANK",
    "SLURM_LOCALID": "$LOCAL_RANK",
}
_UNSET = re.compile(r"\$\{?(SLURM_ARRAY_\w+|[0-9])\b")
_MPI_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]*\Z")
_OTHER_COMMAND = "one run has one command: this one may be a run of its own"
_VET_OPTIONS = option_table({LAYOUT: "nodes= deadline=", DROP: "dir= history= root= on= json"})
_OF_A_RANK = re.compile(r"\$\{?\w*(?:RANK|WORLD_SIZE)\b")
_WORLD = re.compile(r"RANK\b|WORLD_SIZE\b")
# One process with several GPUs must not take itself for one of several ranks: it may start these by itself.
_AS_BY_HAND = ["env", "-u", "RANK", "-u", "LOCAL_RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_WORLD_SIZE"]
_OVERRULED = "everything runs in one environment: that of the command which starts the ranks"


def read_text(path: Path) -> str:
    """Return the text of a script.

    Raises:
        DocumentError: it cannot be read, is larger than 256 KiB, in no encoding that is clear, or no shell script (also: empty, or Python).
    """
    text = read_script_text(path, "an sbatch script")
    first = text.partition("\n")[0]
    is_named_so = "\n#SBATCH" in f"\n{text}" or (path.suffix in ENDINGS and not read_script(path).parsed)
    if not (is_shell(first) if first.startswith("#!") else is_named_so):
        raise fault_error(
            "is no batch script",
            "bad-script",
            file=str(path),
            line=1,
            given=first,
            allowed="a shell script, which begins with #!/bin/bash or the like",
            next="`cordee init` without it looks at the folder; `cordee run FILE` runs a Python script",
        )
    return text


def convert(text: str) -> Conversion:
    """Return what the document of a script says; nothing is run, and any text is accepted."""
    directives = read_directives(text)
    asked = read_layout(directives.given)
    body = read_body(text, Variables(asked.known, {}, dict(_OF_RANKS)), asked.nodes)
    result = Conversion(
        name=asked.text("job-name"), directives=len(directives.given), left=[*directives.left, *body.left]
    )
    folder = asked.text("chdir") or "."
    start = [] if folder in (".", "./") else [f"cd {shlex.quote(folder)}"]
    chosen = choose_launch(body.launches)
    launch = read_launch(chosen, body.variables) if chosen else None
    for command in body.launches:
        if command is not chosen:
            result.left.append(Left(command.line, command.text, _OTHER_COMMAND))
    vetted, by_hand = _vetting(body, result), False
    if launch is not None and "".join(launch.words[:1]).strip("'\""):
        asked = with_step(asked, launch, vetted)
        asked.options += dropped_options(launch, "environment" in last_values([*asked.values.values(), *launch.srun]))
        if by_hand := _is_alone(launch, asked, body):
            by_hand = asked.gpus < 2 or launches_itself(tuple(launch.words))
            launch.words[:0] = [] if by_hand else _AS_BY_HAND
        result.run = command_of(launch, [*start, *body.before, *launch.before])
        result.script = next((word for word in launch.words if word.endswith(".py")), None)
        result.launch = "srun" if launch.is_mpi else "fork"
        result.mpi = _mpi(launch, result.left)
        result.restart = {} if launch.retries is None else {"retries": launch.retries}
    else:
        launch = None
    result.environment = _environment(asked, launch, body.variables, result.left)
    result.need, differences = need_keys(asked, launch)
    if by_hand:
        del result.need["ranks_per_node"]
    result.options, result.checkpoint = asked.options, stop_keys(asked.values)
    if launch and launch.through == "shell":
        result.checkpoint.pop("signal", None)  # sbatch tells steps, and the script's own commands are none
    result.env = {**exported(asked.text("export")), **body.env, **(launch.env if launch else {})}
    result.setup = [*start, *used_setup(body, launch, result.left)]
    result.left += [*asked.left, *(launch.left if launch else []), *differences, *_unset(launch, result.setup)]
    result.left = sorted(dict.fromkeys(result.left), key=lambda left: left.line)
    return result


def _is_alone(launch: ScriptLaunch, asked: RequestedLayout, body: ScriptBody) -> bool:
    """Return whether the command is one process that Slurm, the script and a launcher tell nothing of a world."""
    ranks = (asked.tasks or 1) if launch.through == "srun" else 1
    sets = [one.text for one in [*body.left, *launch.left] if one.why == SETS]
    told = any(map(_WORLD.search, sets)) or _OF_A_RANK.search(launch.source) or (launch.ranks and not launch.launches)
    return asked.nodes == ranks == 1 and not told and launch.through != "mpi" and not launch.is_mpi


def _mpi(launch: ScriptLaunch, left: list[Left]) -> str | None:
    """Return srun's kind of MPI for a program that srun starts; one that only a shell can name is left out."""
    if not launch.is_mpi or launch.mpi is None:
        return None
    if _MPI_TYPE.match(launch.mpi):
        return launch.mpi
    left.append(Left(launch.line, f"--mpi={launch.mpi}", "give the kind of MPI itself: [slurm] mpi"))
    return None


def _environment(
    asked: RequestedLayout, launch: ScriptLaunch | None, variables: Variables, left: list[Left]
) -> str | None:
    """Return the EDF that srun, else sbatch, was told; one that only a shell can name is left out."""
    options = [*asked.values.values(), *(launch.srun if launch else [])]
    named = [one for one in options if one.name == "environment" and one.option is not None]
    if not named:
        return None
    *overruled, given = named
    left += [Left(one.line, long_form(one), _OVERRULED) for one in overruled if one.value != given.value]
    if not given.value:
        return None
    path = variables.path_of(unquoted(given.value)) if needs_shell(given.value) else given.value
    why = "set-up lines run inside it, too" if path else "give the EDF itself: environment = ..."
    left.append(Left(given.line, f"--environment={given.value}", why))
    return path


def _vetting(body: ScriptBody, result: Conversion) -> int | None:
    """Carry `cordee vet` over into [vet]; return how many nodes it wants, None where it does not say."""
    if body.vet is None:
        return None
    words = list(body.vet.words[next(at for at, word in enumerate(body.vet.words) if word == "vet") + 1 :])
    given, protocols = [], []
    while words:
        options, words = parse_options(words, _VET_OPTIONS, body.vet.line)
        given += options
        protocols += words[:1]
        words = words[1:]
    values = {name: one.value for name, one in last_values(given).items()}
    protocol = plain_text(protocols[0]) if protocols else None
    if protocol is None:
        result.left.append(Left(body.vet.line, body.vet.text, "give the protocol itself: [vet] protocol"))
        return None
    result.vet["protocol"] = protocol
    deadline = values.get("deadline")
    if deadline and not needs_shell(deadline):
        result.vet["deadline"] = deadline
    return read_count(values.get("nodes") or "")


def _unset(launch: ScriptLaunch | None, setup: list[str]) -> list[Left]:
    command = launch.source if launch else ""
    line = launch.line if launch else 1
    names = dict.fromkeys(match[1] for match in _UNSET.finditer("\n".join([*setup, command])))
    found = [
        Left(line, f"${name}", "is not set in a run, or something else: write its value into the document")
        for name in names
    ]
    arrays = dict.fromkeys(re.findall(r"\$\{\w+\[[^\]]*\]\}", command))
    return found + [
        Left(line, name, "an array is known to the set-up lines alone: write its words into `run`") for name in arrays
    ]
