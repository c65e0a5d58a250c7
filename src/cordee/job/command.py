"""What a job's command is, as far as can be seen without running it: who starts the ranks, which script, which Python, what only a
shell would understand."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from cordee.job.document import Job
from cordee.machine.tasks.commands import find_command

LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
OTHER_LAUNCHERS = ("mpirun", "mpiexec", "srun", "horovodrun")
_MADE_FOR_CORDEE_ALONE = ("uv-receipt.toml", "pipx_metadata.json")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")
_SYNTAX = (
    (re.compile(r"\$\(|`"), "runs another command"),
    (re.compile(r"&&|\|\||;|\||(?<![>&\d])&(?!>)"), "joins commands"),
    (re.compile(r"\d?>>?(?:&\d)?|&>|<"), "redirects"),
    (re.compile(r"\$\{?\w+"), "is a variable"),
)
_GLOB = re.compile(r"(?<!\S)\S*[*?]\S*|(?<!\S)\S*\[[^\]\s]+\]\S*")
_HOME = re.compile(r"(?<!\S)~(?=/|\s|\Z)")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)=")

_PARAMETER = re.compile(r"\{([A-Za-z_]\w*)\}")


class CommandFacts(NamedTuple):
    """What a job runs.

    Attributes:
        launches: whether it starts the ranks of a node by itself.
        script: the Python script that it runs; None for modules, `-c` and other programs.
        path_prepend: folders that stand before PATH, so that `python` is the one that the person means.
        executable: its absolute path, as the agent will find it; None: it will not, or it lies in an image.
        shell: (what stands there, what a shell would do with it) for each kind of shell syntax.
        undeclared: names in braces that nothing fills in.
    """

    launches: bool
    script: str | None
    path_prepend: tuple[str, ...]
    executable: str | None
    shell: list[tuple[str, str]]
    undeclared: frozenset[str]


def read_command(job: Job, run: object, folder: Path) -> CommandFacts:
    """Return what can be seen of a job's command.

    Args:
        run: the command as the document has it, one text or a list of words.
        folder: in which the job runs.
    """
    environ = {**os.environ, **job.env}
    prepend = () if job.environment else tuple(interpreter_path(environ))
    first = () if "PATH" in job.env else prepend
    return CommandFacts(
        launches=launches_itself(job.run),
        script=script_of(job.run),
        path_prepend=prepend,
        executable=None if job.environment else which(job.run[0], first, environ, folder),
        shell=shell_words(run),
        undeclared=frozenset(name for word in job.run for name in _PARAMETER.findall(word)) - job.parameters,
    )


def script_of(argv: tuple[str, ...]) -> str | None:
    """Return the Python script that a command runs; None for modules, `-c` and other programs."""
    words = list(argv)
    while words:
        name = PurePath(words[0]).name
        if name.startswith("python"):
            return _python_script(words[1:])
        if name in LAUNCHERS or name in OTHER_LAUNCHERS:
            return next((word for word in words[1:] if word.endswith(".py")), None)
        if name not in ("env", "nice", "time", "numactl", "taskset", "stdbuf", "timeout"):
            return words[0] if name.endswith(".py") else None
        words = words[1:]
        while words and not PurePath(words[0]).name.startswith("python") and not words[0].endswith(".py"):
            words = words[1:]
    return None


def launches_itself(argv: tuple[str, ...]) -> bool:
    """Return whether the command starts the ranks of a node by itself; a shell's command line is looked into."""
    words, first = argv, argv[:1]
    if PurePath(argv[0]).name in ("bash", "sh") and len(argv) > 2 and argv[1].startswith("-") and argv[1].endswith("c"):
        words = first = tuple(argv[2].split())
    if any(PurePath(word).name in LAUNCHERS + OTHER_LAUNCHERS for word in first):
        return True
    modules = ("torch.distributed.run", "torch.distributed.launch")
    return any(before == "-m" and word in modules for before, word in itertools.pairwise(words))


def _python_script(words: list[str]) -> str | None:
    while words:
        word = words.pop(0)
        if word == "-m":
            return next((other for other in words if other.endswith(".py")), None)
        if word in ("-c", "-"):
            return None
        if word in _WITH_VALUE:
            words = words[1:]
        elif not word.startswith("-"):
            return word
    return None


def interpreter_path(
    environ: Mapping[str, str], prefix: str = sys.prefix, base_prefix: str = sys.base_prefix
) -> list[str]:
    """Return the folders to put in front of PATH so that `python` is the one that the person means.

    An active virtual or conda environment is on PATH already. Otherwise, when Cordée itself lives in a virtual
    environment of the project, that environment is meant; one that a tool installer made for Cordée alone is not.
    """
    if environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX") or prefix == base_prefix:
        return []
    if any((Path(prefix) / mark).exists() for mark in _MADE_FOR_CORDEE_ALONE):
        return []
    folder = str(Path(prefix) / "bin")
    return [] if environ.get("PATH", "").split(os.pathsep)[:1] == [folder] else [folder]


def which(command: str, path_prepend: tuple[str, ...], environ: Mapping[str, str], workdir: Path) -> str | None:
    """Return the absolute path of a job's command as the agent will find it, None when it will not.

    `python` stands for `python3` where only that exists.
    """
    path = os.pathsep.join([*path_prepend, environ.get("PATH", os.defpath)])
    try:
        return str(Path(find_command((command,), {"PATH": path}, str(workdir))[0]))
    except OSError:
        return None


def commands_on_path(path_prepend: tuple[str, ...], environ: Mapping[str, str]) -> set[str]:
    """Return the names of the programs on PATH; for suggestions."""
    names: set[str] = set()
    for folder in [*path_prepend, *environ.get("PATH", os.defpath).split(os.pathsep)]:
        try:
            names.update(os.listdir(folder or "."))
        except OSError:
            continue
    return names


def shell_words(run: object) -> list[tuple[str, str]]:
    """Return (what stands there, what a shell would do with it) for each kind of shell syntax in `run`.

    A list is words already and has none; nor has a command that is a shell. What stands in single quotes counts as
    meant, in double quotes only variables and commands are looked for, as a shell would.
    """
    if not isinstance(run, str) or PurePath(run.split(maxsplit=1)[0] if run.split() else "").name in _SHELLS:
        return []
    bare, half = _outside_quotes(run)
    found = []
    assignment = _ASSIGNMENT.match(bare)
    if assignment:
        found.append((run.split()[0], "sets a variable"))
    for pattern, meaning in _SYNTAX:
        match = pattern.search(half if meaning in ("runs another command", "is a variable") else bare)
        if match:
            found.append((match.group().strip(), meaning))
    for pattern, meaning in ((_GLOB, "matches files"), (_HOME, "is your home folder")):
        match = pattern.search(bare)
        if match:
            found.append((match.group().strip(), meaning))
    return found


def _outside_quotes(text: str) -> tuple[str, str]:
    """Return the text with all quoted parts blanked, and with only those in single quotes blanked."""
    bare, half, quote, position = [], [], "", 0
    while position < len(text):
        letter = text[position]
        if letter == "\\" and quote != "'":
            bare.append("__")
            half.append("__")
            position += 2
            continue
        if quote:
            bare.append("_")
            half.append(letter if quote == '"' else "_")
            quote = "" if letter == quote else quote
        else:
            quote = letter if letter in "'\"" else ""
            bare.append("_" if quote else letter)
            half.append("_" if quote else letter)
        position += 1
    return "".join(bare), "".join(half)
