"""The commands of a script, sorted: set-up, variables, what stands in front of the command, the command, the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from cordee.backends.job_scripts.options import SRUN_OPTIONS, parse_options
from cordee.backends.job_scripts.shell import Command, array_words, chains, read_commands
from cordee.backends.job_scripts.variables import Variables, assignment, plain_text, unquoted
from cordee.job.conversion import Left

SETS = "Cordée sets these for every rank"
OF_RANKS = "made of variables that only a rank has: filled in where `run` uses it"
IN_FOLDER = "the ranks run in the job's folder anyway"
PRINTS = "only prints; the run's journal and report say more"
FOR_SRUN = "meant for srun, which Cordée calls itself"
CONTINUES = (
    "Cordée continues a run by itself: [need] time may exceed a job's limit, and [checkpoint] says how it continues"
)
OUTPUT = "the ranks' output is kept in the run's folder: `cordee logs RUN`"
_COMPOUND = "a condition, loop, function or group; put it into a script of its own and name that in `run`"
_FARM = "one command for each of many values: `cordee farm LIST` runs a list of commands, one a line"
_INTERACTIVE = "opens a shell: `cordee shell RUN` does so in a run"
_BACKGROUND = "runs in the background; one run has one command (a second one may be a run of its own)"
SEVERAL = "a program of its own for some of the tasks: one run has one program; it may be a run of its own"
_AFTER = "comes after the training, where Cordée runs nothing"
_EVERY_NODE = "would run on every node at once, not on the first alone; do it before, or in the script"
_DOCUMENT = "reads a here-document; put it into a file of its own"
_JOINED = "joined commands; put them into a script of its own"
VETTED = "[vet] does it: nodes that fail are left out, and without enough of them the run ends before the ranks start"
_EXIT = "an exit code ends nothing here: a set-up line that fails ends the attempt"

_KINDS = {
    word: kind
    for kind, words in {
        "print": "clear echo printf date hostname nvidia-smi rocm-smi printenv pwd whoami id which type sleep true squeue sinfo "
        "sacct lscpu lsblk free df du uptime uname cat ls nproc ps head tail jobs sstat seff groups lstopo",
        "setup": ": module ml source . conda mamba micromamba pyenv spack eval set shopt unset mkdir",
        "before": "cd pushd ulimit umask",
        "continue": "sbatch",
        "condition": "[ [[ test if",
        "quiet": "wait exit return popd",
        "launch": "srun torchrun mpirun mpiexec orterun ibrun accelerate deepspeed horovodrun "
        "julia Rscript matlab octave gmx java vllm",
        "script": "bash sh",
    }.items()
    for word in words.split()
}
_FAN_OUT = ("parallel", "xargs")
_RUNNERS = ("uv", "pixi", "poetry", "pdm", "hatch", "rye")
# What may stand in front of a command: the options that take the next word, and how many words stand before the command.
_WRAPPERS: dict[str, tuple[tuple[str, ...], int]] = {
    **dict.fromkeys(("time", "exec", "nohup", "command", "catchsegv"), ((), 0)),
    "env": (("-u", "--unset", "-C", "--chdir"), 0),
    "nice": (("-n", "--adjustment"), 0),
    "numactl": (("-C", "-N", "-m", "-i", "-p"), 0),
    "stdbuf": (("-i", "-o", "-e"), 0),
    "timeout": (("-s", "--signal", "-k", "--kill-after"), 1),
    "taskset": ((), 1),
}
RANK_NAMES = (
    "MASTER_(?:ADDR|PORT)|(?:LOCAL_|NODE_|GROUP_|GLOBAL_)?RANK|(?:LOCAL_|GROUP_)?WORLD_SIZE|JAX_COORDINATOR_ADDRESS|"
    "JAX_NUM_PROCESSES|JAX_PROCESS_ID|TF_CONFIG"
)
_RANKS = re.compile(rf"({RANK_NAMES})\Z")
_FIRST_NODE = re.compile(
    r"scontrol\s+show\s+host|\bhostname\b|SLURM_(JOB_)?NODELIST|SLURM_LAUNCH_NODE_IPADDR|SLURMD_NODENAME"
)
_STAYS = ("cd $SLURM_SUBMIT_DIR", "cd .", "cd $PWD", "cd $(pwd)")
_MODULE_PRINTS = ("list", "avail", "show", "spider", "whatis", "display", "-t")
_CHAINS = re.compile(r"\bsbatch\b|scontrol\s+requeue")
_LAUNCHES = re.compile(r"\b(?:srun|mpirun|torchrun|python3?)\b")
_FOR_EACH = re.compile(r"for\b|while\s+(?:IFS=\S*\s+)?read\b")
_FUNCTION = re.compile(r"\A(?:function\s+)?([\w:-]+)\s*(?:\(\s*\)|\{)")
_OF_VETTING = re.compile(r"\bCORDEE_VET_|\bvet\.env\b")
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})\Z")
_NO_TRAINING = re.compile(r"-m\s+(pip|venv|ensurepip|wandb|compileall)\b|\s-c\s|\s(--version|-V)\b")


@dataclass(frozen=True)
class SetupLine:
    """A set-up line; `name` is the variable that it only sets, when it may be left out where nobody uses it."""

    line: int
    text: str
    name: str = ""


@dataclass
class ScriptBody:
    """The commands of a script.

    Attributes:
        setup: lines that run once per node.
        env: literal variables of the ranks.
        before: what only the shell of the command itself can do: `cd`, `ulimit`.
        launches: commands that may be the training, filled in.
        functions: that the script defines, which is not carried over.
        vet: `cordee vet` and its arguments, filled in.
    """

    variables: Variables
    nodes: int = 1
    setup: list[SetupLine] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    launches: list[Command] = field(default_factory=list)
    vet: Command | None = None
    functions: set[str] = field(default_factory=set)
    left: list[Left] = field(default_factory=list)

    def leave(self, command: Command, why: str) -> None:
        """Note a command that is not carried over."""
        self.left.append(Left(command.line, command.text, why))


def read_body(text: str, variables: Variables, nodes: int) -> ScriptBody:
    """Return the commands of a script; `variables` holds what Slurm would set and learns what the script sets."""
    body = ScriptBody(variables, nodes)
    _add_all(body, read_commands(text))
    return body


def _add_all(body: ScriptBody, commands: list[Command], *, within_eval: bool = False) -> None:
    for chain in chains(commands):
        if not within_eval and (evaluated := _evaluated(body, chain)):
            _add_all(body, evaluated, within_eval=True)
        elif all(command.after == "&&" for command in chain[:-1]) and kind_of(chain[0].words) != "condition":
            for command in chain:
                _add(body, command)
        else:
            _add_joined(body, chain)


def is_of_vetting(text: str) -> bool:
    """Return whether a piece of source uses what `cordee vet` leaves behind."""
    return _OF_VETTING.search(text) is not None


def is_of_ranks(name: str) -> bool:
    """Return whether Cordée sets a variable for every rank."""
    return _RANKS.match(name) is not None


def program_at(words: Sequence[str]) -> int:
    """Return where the program stands behind variables, and behind `time`, `timeout 3h` and the like."""
    at = 0
    while at < len(words):
        wrapper = _WRAPPERS.get(words[at])
        if wrapper is None and not assignment(words[at]):
            break
        at += 1
        while wrapper and at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in wrapper[0] else 1
        at += wrapper[1] if wrapper else 0
    return min(at, len(words))


def kind_of(words: Iterable[str]) -> str:
    """Return what a command is: print, setup, before, continue, condition, quiet, launch, script, several,
    interactive, vet, set, or other.
    """
    given = list(words)
    rest = given[program_at(given) :]
    if not rest:
        return "set" if any(map(assignment, given)) else "print"
    # A path of "." has no name, and the command of that name is `source`.
    name, second, line = PurePath(rest[0].strip("\"'")).name or rest[0], (rest[1:] or [""])[0], " ".join(rest)
    kind = _KINDS.get(name, "other")
    if name == "srun":
        options, inner = parse_options(rest[1:], SRUN_OPTIONS, 0)
        if any(one.name == "multi-prog" for one in options):
            return "several"
        if inner in (["bash"], ["sh"], ["zsh"]):
            return "interactive"
        within = kind_of(inner) if inner and PurePath(inner[0]).name != "srun" else "nothing"
        return "launch" if within in ("script", "other") else within
    if name in ("module", "ml") and second in _MODULE_PRINTS:
        return "print"
    if name in ("conda", "mamba", "micromamba") and second not in ("activate", "deactivate"):
        return "launch" if second == "run" else "other"
    if name in _RUNNERS:
        return "launch" if second == "run" else "other"
    if name in ("apptainer", "singularity"):
        return "launch" if second in ("exec", "run") else "other"
    if name == "scontrol":
        return "continue" if second == "requeue" else "print"
    if name == "cordee":
        return "vet" if second == "vet" else "other"
    if name == "trap":
        return "continue"
    if name.startswith("python") or name.endswith(".py"):
        return "other" if _NO_TRAINING.search(line) else "launch"
    if name in ("export", "declare"):
        return "set"
    return "script" if kind == "other" and ("/" in rest[0] or name.endswith(".sh")) else kind


def _add(body: ScriptBody, command: Command) -> None:
    if is_of_vetting(command.text) and kind_of(command.words) not in ("launch", "script"):
        body.leave(command, VETTED)
        return
    if command.compound:
        chained = _CHAINS.search(command.text) or "trap" in command.text.split()
        runs = _FOR_EACH.match(command.text) and _LAUNCHES.search(command.text)
        body.leave(command, CONTINUES if chained else _FARM if runs else _COMPOUND)
        body.functions |= set(_FUNCTION.findall(command.text)[:1])
        return
    given, command = command, _filled(body, command)
    if body.functions.intersection(command.words[:1]):
        body.leave(given, _COMPOUND)
        return
    kind = kind_of(command.words)
    if any(redirect.startswith("<<") and not redirect.startswith("<<<") for redirect in command.redirects):
        body.leave(given, _DOCUMENT)
        return
    if kind == "print" and any(redirect.startswith(">") for redirect in command.redirects):
        kind = "other"
    if kind == "set":
        _assign_all(body, command)
    elif kind in ("launch", "script"):
        body.launches.append(command)
    elif kind == "vet":
        body.vet = command
    elif kind == "setup" and command.words[0] == "set" and command.words[1:] == ("-e",):
        pass
    elif kind == "setup":
        body.setup.append(SetupLine(command.line, command.text))
    elif kind == "before" and re.sub(r'["{}]', "", " ".join(command.words)) in _STAYS:
        body.leave(given, IN_FOLDER)
    elif kind == "before":
        body.before.append(command.text)
        body.setup += [SetupLine(command.line, command.text)] if command.words[0] in ("cd", "pushd") else []
    elif kind == "other" and PurePath("".join(command.words[:1])).name in _FAN_OUT:
        body.leave(given, _FARM)
    elif kind == "other" and body.nodes == 1 and not body.launches and command.after != "&":
        body.setup.append(SetupLine(command.line, command.text))
    elif kind != "quiet":
        after = _BACKGROUND if command.after == "&" else _AFTER if body.launches else _EVERY_NODE
        body.leave(
            given,
            {"print": PRINTS, "continue": CONTINUES, "several": SEVERAL, "interactive": _INTERACTIVE}.get(kind, after),
        )


def _add_joined(body: ScriptBody, chain: list[Command]) -> None:
    """Add commands joined by `|` or `||`: a set-up line stays whole, a command loses what keeps its output."""
    text = " ".join(f"{command.text} {command.after}".strip() for command in chain)
    first, kind = chain[0], kind_of(_filled(body, chain[0]).words)
    rest_is_output = all(command.words[:1] in (("tee",), ("cat",), ("ts",)) for command in chain[1:])
    starts = kind in ("launch", "script", "vet")
    if is_of_vetting(text) and not starts:
        body.leave(replace(first, text=text), VETTED)
    elif starts and rest_is_output:
        body.leave(replace(first, text="| " + " | ".join(command.text for command in chain[1:])), OUTPUT)
        _add(body, replace(first, after=chain[-1].after))
    elif starts and first.after == "||":
        why = VETTED if kind == "vet" else CONTINUES if _CHAINS.search(text) else _EXIT
        body.leave(replace(first, text="|| " + " || ".join(command.text for command in chain[1:])), why)
        _add(body, first)
    elif kind in ("setup", "set") and not any(command.compound for command in chain):
        body.setup.append(SetupLine(first.line, body.variables.fill(text)))
    else:
        body.leave(replace(first, text=text), _why_joined(text, kind, chain))


def _why_joined(text: str, kind: str, chain: list[Command]) -> str:
    if any(PurePath("".join(command.words[:1])).name in _FAN_OUT for command in chain):
        return _FARM
    if kind == "print" and not any(kind_of(command.words) in ("launch", "script") for command in chain):
        return PRINTS
    if _CHAINS.search(text):
        return CONTINUES
    return _COMPOUND if kind == "condition" else _JOINED


def _evaluated(body: ScriptBody, chain: list[Command]) -> list[Command]:
    """Return the commands that the `eval` in front of a chain runs, and the rest of the chain; none where no program starts."""
    first = chain[0]
    if first.words[:1] != ("eval",):
        return []
    # `eval` joins its words by blanks: a variable of several words is filled in as one inside quotes is.
    words = [f'"{word}"' if _VARIABLE.match(word) else word for word in first.words[1:]]
    inner = read_commands(body.variables.evaluated(" ".join(words)))
    if not any(kind_of(command.words) == "launch" for command in inner):
        return []
    inner = [replace(command, line=first.line) for command in inner]
    redirects = (*inner[-1].redirects, *first.redirects)
    return [*inner[:-1], replace(inner[-1], after=first.after, redirects=redirects), *chain[1:]]


def _filled(body: ScriptBody, command: Command) -> Command:
    """Return a command with the known variables filled in; a value of several words becomes several words."""
    keep_names = kind_of(command.words) == "set"
    filled = command.words if keep_names else tuple(body.variables.fill(word) for word in command.words)
    if filled == command.words:
        return command
    again = [one for one in read_commands(" ".join(filled)) if not one.compound]
    words = again[0].words if len(again) == 1 else filled
    redirects = "".join(f" {redirect}" for redirect in command.redirects)
    return replace(command, words=words, text=" ".join(words) + redirects)


def _assign_all(body: ScriptBody, command: Command) -> None:
    exported = command.words[0] in ("export", "declare")
    for word in command.words[1:] if exported else command.words:
        found = assignment(word)
        if found:
            _assign(body, command, *found, exported=exported)
        elif exported and word in body.variables.known:
            _keep(body, command, word, body.variables.known[word])
        elif exported and not word.startswith("-") and not _RANKS.match(word):
            body.setup = [replace(line, name="" if line.name == word else line.name) for line in body.setup]


def _assign(body: ScriptBody, command: Command, name: str, append: bool, source: str, *, exported: bool) -> None:
    variables = body.variables
    if source.startswith("("):
        _assign_array(body, command, name, append, source)
        return
    filled = variables.fill(source)
    text = plain_text(filled)
    if text is not None and append:
        text = variables.known[name] + text if name in variables.known else None
    first_node = _FIRST_NODE.search(filled) or (re.search(r"\$\(|`", filled) and _of_ranks(variables, filled))
    bare = re.sub(r"[{}]", "", unquoted(filled))
    if _RANKS.match(name) or name.startswith(("SRUN_", "SLURM_")):
        body.leave(command, SETS if _RANKS.match(name) else FOR_SRUN)
        if text is not None and name.endswith("SIZE"):
            variables.known[name] = text
    elif first_node or bare in variables.alias.values():
        variables.alias[name] = "$MASTER_ADDR" if first_node else bare
        body.leave(command, SETS)
    elif text is None and not append and _of_ranks(variables, filled):
        variables.known[name] = unquoted(filled)
        body.leave(command, OF_RANKS)
    elif text is not None and not any(line.name == name for line in body.setup):
        variables.known[name] = text
        if exported:
            _keep(body, command, name, text)
        elif variables.fill(f"${name}") == f"${name}":
            body.setup.append(SetupLine(command.line, f"export {name}={filled}", name))
    else:
        variables.known.pop(name, None)
        path = None if append else variables.path_of(unquoted(filled))
        variables.sources.pop(name, None)
        variables.texts.pop(name, None)
        if not append and not re.search(r"\$\(|`", filled):
            variables.texts[name] = unquoted(filled)
        if path is None:
            variables.unknown.add(name)
        else:
            variables.sources[name] = path
        plus = "+" if append else ""
        body.setup.append(SetupLine(command.line, f"export {name}{plus}={filled}", "" if exported else name))


def _assign_array(body: ScriptBody, command: Command, name: str, append: bool, source: str) -> None:
    variables = body.variables
    words = variables.fill(array_words(source))
    if _FIRST_NODE.search(source) or words in variables.alias.values():
        variables.alias[name] = "$MASTER_ADDR"
        body.leave(command, SETS)
        return
    variables.arrays[name] = f"{variables.arrays.get(name, '')} {words}".strip() if append else words
    body.setup.append(SetupLine(command.line, f"{name}{'+' if append else ''}=({words})", name))


def _of_ranks(variables: Variables, filled: str) -> bool:
    """Return whether a value is made of variables that only a rank has, such as `$GROUP_RANK`."""
    names = "|".join(re.escape(alias[1:]) for alias in sorted(set(variables.alias.values())))
    return bool(names and re.search(rf"\$\{{?({names}|MASTER_PORT)\b", filled))


def _keep(body: ScriptBody, command: Command, name: str, text: str) -> None:
    """Export a literal: in [env], or as a set-up line where order matters."""
    if (
        name.endswith("PATH")
        or name.startswith("CORDEE_")
        or any(re.match(rf"export {name}\+?=", line.text) for line in body.setup)
    ):
        quoted = "'" + text.replace("'", "'\\''") + "'"
        body.setup.append(SetupLine(command.line, f"export {name}={quoted}"))
    else:
        body.env[name] = text
