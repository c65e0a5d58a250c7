"""The command that starts a training: through srun, torchrun, mpirun and the like, down to the program."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass, field
from pathlib import PurePath

from cordee.backends.job_scripts.body import (
    FOR_SRUN,
    OUTPUT,
    PRINTS,
    RANK_NAMES,
    SETS,
    SEVERAL,
    VETTED,
    ScriptBody,
    is_of_ranks,
    is_of_vetting,
    kind_of,
    program_at,
    read_body,
)
from cordee.backends.job_scripts.options import (
    CARRY,
    DROP,
    EXPORTED,
    IN_THE_EDF,
    LAYOUT,
    OF_A_SHELL,
    OF_THE_JOB,
    OF_THE_STEP,
    SRUN_OPTIONS,
    GivenOption,
    exported,
    last_values,
    long_form,
    option_table,
    parse_options,
)
from cordee.backends.job_scripts.shell import Command, read_commands
from cordee.backends.job_scripts.variables import Variables, assignment, needs_shell, plain_text
from cordee.job.conversion import Left

_TORCHRUN = (
    "nnodes= nproc-per-node= rdzv-backend= rdzv-endpoint= rdzv-id= rdzv-conf= max-restarts= monitor-interval= "
    "start-method= role= log-dir= redirects/r= tee/t= node-rank= master-addr= master-port= local-addr= "
    "local-ranks-filter= logs-specs= event-log-handler= signals-to-handle= numa-binding= standalone module/m no-python "
    "run-path use-env virtual-local-rank"
)
_DEEPSPEED = (
    "num-gpus= num-nodes= hostfile/H= include/i= exclude/e= master-addr= master-port= node-rank= launcher= launcher-args= "
    "module no-python no-local-rank no-ssh no-ssh-check save-pid enable-each-rank-log= bind-cores-to-rank "
    "bind-core-list= force-multi elastic-training ssh-port="
)
_MPIRUN = {
    **dict.fromkeys(("-np", "--np", "-n", "-N", "-npernode", "--npernode", "-ppn", "-map-by", "--map-by"), 1),
    **dict.fromkeys(("-bind-to", "--bind-to", "-rank-by", "--rank-by", "-x", "-hostfile", "--hostfile", "-f"), 1),
    **dict.fromkeys(("-machinefile", "--machinefile", "-host", "--host", "-H", "-wdir", "--wdir"), 1),
    **dict.fromkeys(("-mca", "--mca", "-genv", "-env"), 2),
}
_MPI_RANKS = {"-np": "all", "--np": "all", "-n": "all", "-npernode": "node", "--npernode": "node", "-ppn": "node"}
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_SHELLS = ("bash", "sh", "zsh")
_NO_MPI = (*_SHELLS, "apptainer", "singularity", "accelerate", "env", "numactl", "uv", "conda", "micromamba", "pixi")
_SHELL_FLAGS = re.compile(r"(?:--?[a-z]+ )*-[a-z]*c\Z")
_MPI = ("mpirun", "mpiexec", "orterun", "ibrun")
_PLAIN = ("time", "exec", "nohup", "command")
_STARTED = "Cordée starts the ranks itself, with RANK, WORLD_SIZE, MASTER_ADDR and the like set as {0} would"
_STAYS_WHOLE = "stays in `run`: one on each node starts that node's processes, so Cordée sees one rank per node"
_LOCAL_RANK = "the script is given no --local_rank: LOCAL_RANK in the environment says the same"
_ARGUMENTS = "arguments of the job script; add them to `run`"


_NOT_MADE = "reads a file that a line makes which is not carried over"
# What a command writes to, and what a set-up line reads from.
_WRITES = re.compile(r"(?:>>?\|?|\btee\s(?:-a\s)?|\s(?:-o|-O|--output)[ =])\s*([^\s;&|()<>]+)")
_READS = re.compile(r"(?:\b(?:source|cat|head|tail)|(?:\A|[;&|]\s*)\.|<)(?:\s+-\S+)*\s+([^\s;&|()<>]+)")
_HERE = re.compile(r"[\"'{}]|\$\{?(?:SLURM_SUBMIT_DIR|PWD)\}?/")
_VARIABLE = re.compile(r"\"?\$(?:\w+|\{\w+\})\"?\Z")
_SETS_RANKS = re.compile(rf"\b({RANK_NAMES})=")
_OF_NODES = re.compile(r"scontrol|NODELIST|LAUNCH_NODE")
_LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|deepspeed|accelerate launch)\b")


def _both_spellings(names: str) -> str:
    return names + " " + names.replace("-", "_")


_LAUNCHERS = {
    "torchrun": option_table({DROP: _both_spellings(_TORCHRUN)}),
    "deepspeed": option_table({DROP: _both_spellings(_DEEPSPEED)}),
}


@dataclass
class ScriptLaunch:
    """What starts the training.

    Attributes:
        words: the program and its arguments, as source.
        through: "shell" (the batch script itself, on the first node), "srun" or "mpi".
        srun: srun's own options.
        input: where the program reads from, such as `< in.txt`.
        ranks: of a node as a launcher was told: a number, "gpu", or "" for as many as there are tasks.
        all_ranks: of all nodes together, as mpirun was told.
        launches: whether the program starts the ranks of its node by itself.
        is_mpi: whether the program must be started by srun.
        mpi: what srun was told of MPI.
    """

    line: int
    words: list[str]
    through: str = "shell"
    srun: list[GivenOption] = field(default_factory=list)
    input: str = ""
    ranks: str = ""
    all_ranks: str = ""
    launches: bool = False
    is_mpi: bool = False
    mpi: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    retries: int | None = None
    left: list[Left] = field(default_factory=list)

    def leave(self, text: str, why: str) -> None:
        """Note a piece of the command that is not carried over."""
        self.left.append(Left(self.line, text, why))

    @property
    def source(self) -> str:
        """The command as a shell would have it."""
        return " ".join(self.words)


def choose_launch(launches: list[Command]) -> Command | None:
    """Return the command that is the training: with `train` in it rather than not, a later one rather than an earlier."""
    ranked = [
        ("bash" not in command.words[:1], "train" in command.text, index) for index, command in enumerate(launches)
    ]
    return launches[max(ranked)[2]] if ranked else None


def read_launch(command: Command, variables: Variables) -> ScriptLaunch:
    """Return how a command starts the training."""
    launch = ScriptLaunch(command.line, list(command.words))
    _redirect(launch, command)
    arguments = [word for word in launch.words if word in ('"$@"', "$@", "$*")]
    if arguments:
        launch.leave(arguments[0], _ARGUMENTS)
        launch.words = [word for word in launch.words if word not in arguments]
    _peel(launch, variables)
    _launcher(launch)
    names = [re.split(r"[\s/]", word.strip("\"'`$()"))[-1] for word in launch.words]
    first, second = [*names[program_at(launch.words) :], "", ""][:2]
    launch.mpi = next((one.value for one in reversed(launch.srun) if one.name == "mpi"), None)
    scripted = first in _NO_MPI or first.endswith((".py", ".sh")) or second.endswith(".py")
    scripted = scripted or any(name.startswith("python") for name in names)
    chosen = launch.mpi not in (None, "none") or (launch.through == "srun" and not scripted and launch.mpi is None)
    launch.is_mpi = launch.through == "mpi" or (chosen and not launch.ranks)
    return launch


def _redirect(launch: ScriptLaunch, command: Command) -> None:
    launch.input += " ".join(one for one in command.redirects if one.startswith("<"))
    outputs = " ".join(one for one in command.redirects if not one.startswith("<"))
    if outputs:
        launch.leave(outputs, OUTPUT)


def _peel(launch: ScriptLaunch, variables: Variables) -> None:
    """Take off what stands around the program: variables, `time`, srun, mpirun, `bash -c`."""
    wrappers: list[str] = []
    while launch.words:
        _own_variables(launch)
        word = launch.words[0] if launch.words else ""
        name = PurePath(word).name
        at = program_at(launch.words)
        if at and PurePath("".join(launch.words[at : at + 1])).name in ("srun", *_MPI):
            wrappers += [other for other in launch.words[:at] if other not in _PLAIN]
            del launch.words[:at]
        elif assignment(word):
            break
        elif name in _PLAIN:
            launch.words.pop(0)
        elif name == "srun":
            launch.through = "srun"
            given, launch.words = parse_options(launch.words[1:], SRUN_OPTIONS, launch.line)
            launch.srun += [_unquoted(one) for one in given]
            while _holds_options(launch.words):
                launch.leave(launch.words[0], OF_A_SHELL)
                given, launch.words = parse_options(launch.words[1:], SRUN_OPTIONS, launch.line)
                launch.srun += [_unquoted(one) for one in given]
            _first_component(launch)
        elif name in _MPI:
            launch.through = "mpi"
            _mpirun(launch)
            _first_component(launch)
        elif name in _SHELLS and len(launch.words) > 2 and _SHELL_FLAGS.match(" ".join(launch.words[1:-1])):
            _inner(launch, variables)
            break
        else:
            break
    if wrappers and launch.words and assignment(launch.words[0]):
        wrappers.append("env")
    launch.words[:0] = wrappers


def _first_component(launch: ScriptLaunch) -> None:
    """Take off the programs behind the `:` of srun and mpirun."""
    if ":" in launch.words:
        at = launch.words.index(":")
        launch.leave(" ".join(launch.words[at:]), SEVERAL)
        del launch.words[at:]


def _own_variables(launch: ScriptLaunch) -> None:
    """Take off the variables in front of the program: those that Cordée sets are listed, literal ones are kept in `env`."""
    while launch.words and (found := assignment(launch.words[0])):
        text = plain_text(found[2])
        if is_of_ranks(found[0]):
            launch.leave(launch.words[0], SETS)
        elif text is not None:
            launch.env[found[0]] = text
        else:
            break
        launch.words.pop(0)
    # Behind one that stays, what Cordée sets must not stay either.
    count = next((index for index, word in enumerate(launch.words) if not assignment(word)), len(launch.words))
    for word in launch.words[:count]:
        if is_of_ranks(word.partition("=")[0]):
            launch.leave(word, SETS)
            launch.words.remove(word)


def _holds_options(words: list[str]) -> bool:
    """Return whether a variable stands where srun's options stand, in front of a program."""
    if len(words) < 2 or not _VARIABLE.match(words[0]):
        return False
    rest = parse_options(words[1:], SRUN_OPTIONS, 0)[1]
    is_interpreter = words[1].endswith(".py") or words[1] == "-m"
    return not is_interpreter and kind_of(rest) in ("launch", "script")


def _unquoted(one: GivenOption) -> GivenOption:
    value = None if one.value is None else (plain_text(one.value) or one.value)
    return GivenOption(one.option, value, one.text, one.line)


def _mpirun(launch: ScriptLaunch) -> None:
    words = launch.words[1:]
    left = []
    while words and words[0].startswith("-"):
        name = words.pop(0)
        values = [words.pop(0) for _ in range(min(_MPIRUN.get(name, 0), len(words)))]
        found = assignment(values[0]) if name == "-x" and values else None
        if name in ("-genv", "-env") and len(values) == 2:
            found = (values[0], False, values[1])
        text = plain_text(found[2]) if found else None
        if found and text is not None:
            launch.env[found[0]] = text
        elif _MPI_RANKS.get(name) == "all":
            launch.all_ranks = values[0] if values else ""
        elif _MPI_RANKS.get(name) == "node":
            launch.ranks = values[0] if values else ""
        elif name != "-x":
            left.append(" ".join([name, *values]))
    if left:
        launch.leave(" ".join(left), "options of mpirun; Slurm places and binds the ranks")
    launch.words = words


def _inner(launch: ScriptLaunch, variables: Variables) -> None:
    """Read the script of `bash -c`: its one command in place of the shell where nothing else of it matters."""
    text = variables.evaluated(launch.words[-1])
    body = read_body(text, Variables(dict(variables.known), dict(variables.arrays), dict(variables.alias)), nodes=2)
    harmless = all(one.why in (SETS, PRINTS, FOR_SRUN) for one in body.left)
    if len(body.launches) == 1 and harmless and not [line for line in body.setup if not line.name]:
        launch.words = list(body.launches[0].words)
        _redirect(launch, body.launches[0])
        launch.env.update(body.env)
        launch.before += body.before
        launch.left += [Left(launch.line, one.text, one.why) for one in body.left]
        _peel(launch, body.variables)
    else:
        _keep_shell(launch, text, variables, body.variables)


def _keep_shell(launch: ScriptLaunch, text: str, outer: Variables, inner: Variables) -> None:
    """Keep a script of `bash -c` as it is, without the variables for which Cordée has a value of its own."""
    alias = dict(outer.alias)
    for command in read_commands(text):
        sets = kind_of(command.words) == "set"
        words = command.words if sets else tuple(itertools.takewhile(assignment, command.words))
        own = [word for word in words if _is_own(word, inner)]
        if not own or command.compound or text.count(command.text) != 1:
            continue
        rest = [word for word in command.words if word not in own]
        alias.update(
            {name: inner.alias[name] for name in (word.partition("=")[0] for word in own) if name in inner.alias}
        )
        launch.left += [Left(launch.line, word, SETS) for word in own]
        if any(map(assignment, rest)) or not sets:
            text = text.replace(command.text, " ".join([*rest, *command.redirects]))
        else:
            behind = re.compile(rf"{re.escape(command.text)}[ \t]*(?:&&|;|\n)\s*")
            text = behind.sub("", text) if behind.search(text) else text.replace(command.text, ":")
    for name in dict.fromkeys(_SETS_RANKS.findall(text)):
        launch.leave(
            f"{name}=...", "set by the command itself, over the value that Cordée gives every rank: take it out"
        )
    launcher = _LAUNCHER.search(text)
    if launcher:
        _stay_whole(launch, launcher[0])
    launch.words = [*launch.words[:-1], shlex.quote(Variables({}, {}, alias).fill(text))]


def _is_own(word: str, inner: Variables) -> bool:
    """Return whether a word sets a variable of every rank, or one to the name of the first node."""
    found = assignment(word)
    return found is not None and (
        is_of_ranks(found[0]) or (found[0] in inner.alias and bool(_OF_NODES.search(found[2])))
    )


def _launcher(launch: ScriptLaunch) -> None:
    """Take off torchrun and deepspeed; accelerate stays, one for each node."""
    for index, word in enumerate(launch.words):
        name = PurePath(word).name
        is_module = name.startswith("python") and _torch_module(launch.words[index + 1 :])
        if name == "torchrun" or is_module:
            launched_by = is_module or "torchrun"
            rest = launch.words[index + 1 :]
            rest = rest[rest.index(launched_by) + 1 :] if is_module else rest
            python = word if is_module else "python"
            _unwrap(launch, launch.words[:index], python, rest, launched_by)
            return
        if name == "deepspeed":
            _unwrap(launch, launch.words[:index], "python", launch.words[index + 1 :], name)
            return
        if name == "accelerate":
            _stay_whole(launch, word)
            return
        if name.startswith("python") or name.endswith((".py", ".sh")):
            return


def _stay_whole(launch: ScriptLaunch, launcher: str) -> None:
    launch.ranks, launch.launches = "1", True
    launch.leave(launcher, _STAYS_WHOLE)


def _torch_module(words: list[str]) -> str:
    """Return the launcher in `python [-u] -m torch.distributed.run`, "" when it is another command."""
    for flag, module in itertools.pairwise(words):
        if flag == "-m" and module in _TORCH_MODULES:
            return module
        if not flag.startswith("-"):
            break
    return ""


def _unwrap(launch: ScriptLaunch, prefix: list[str], python: str, rest: list[str], launcher: str) -> None:
    table = _LAUNCHERS["deepspeed" if launcher == "deepspeed" else "torchrun"]
    given, program = parse_options(rest, table, launch.line)
    values = {name.replace("_", "-"): _unquoted(one).value for name, one in last_values(given).items()}
    if not program:
        launch.ranks = "1"
        return
    asked = values.get("num-gpus") if launcher == "deepspeed" else values.get("nproc-per-node", "1")
    launch.ranks = "gpu" if asked in (None, "gpu", "auto") else str(asked)
    restarts = values.get("max-restarts") or ""
    launch.retries = int(restarts) if restarts.isdigit() and len(restarts) < 6 else None
    head = [] if "no-python" in values else [python, "-m"] if "module" in values else [python]
    launch.words = [*prefix, *head, *program]
    text = " ".join([launcher, *(one.text for one in given)])
    launch.leave(text, _STARTED.format(launcher))
    if launcher == "deepspeed" or (launcher == "torch.distributed.launch" and "use-env" not in values):
        launch.leave(launcher, _LOCAL_RANK)


def command_of(launch: ScriptLaunch, before: list[str]) -> str | list[str]:
    """Return `run`: a text where no shell is needed, else a shell that becomes the program.

    Args:
        before: lines for the same shell, such as `cd DIR`; what [checkpoint] resume appends arrives through "$@".
    """
    if (
        not before
        and not launch.input
        and not needs_shell(launch.source)
        and not any(map(assignment, launch.words[:1]))
    ):
        words = [plain_text(word) or "" for word in launch.words]
        try:
            plain = shlex.split(launch.source) == words
        except ValueError:
            plain = False
        return launch.source if plain else words
    exec_ = "" if any(map(assignment, launch.words[:1])) else "exec "
    return ["bash", "-c", " && ".join([*before, f'{exec_}{launch.source} "$@" {launch.input}'.rstrip()]), "bash"]


def used_setup(body: ScriptBody, launch: ScriptLaunch | None, left: list[Left]) -> list[str]:
    """Return the set-up lines, without variables that nothing refers to, and without those that read what no line makes."""
    kept: list[str] = []
    behind = [*([*launch.words, launch.input] if launch else []), *body.before]
    made = {_path(body, name) for one in left for name in _WRITES.findall(one.text)}
    setup = []
    for line in body.setup:
        if made & {_path(body, name) for name in _READS.findall(line.text)}:
            left.append(Left(line.line, line.text, _NOT_MADE))
            made |= {_path(body, name) for name in _WRITES.findall(line.text)}
        else:
            setup.append(line)
    for line in reversed(setup):
        if not line.name or any(re.search(rf"\$\{{?{line.name}\b", text) for text in behind):
            kept.insert(0, line.text)
            behind.append(line.text)
    return kept


def _path(body: ScriptBody, word: str) -> str:
    return _HERE.sub("", body.variables.fill(word)).removeprefix("./")


def dropped_options(launch: ScriptLaunch, within: bool) -> list[str]:
    """Return the options of srun that the whole job can have, and note the others that are not carried over, those of one
    kind together.

    Args:
        within: whether the command runs in an environment, of which some of them speak.
    """
    carried: list[str] = []
    kinds: dict[str, list[str]] = {}
    for one in launch.srun:
        fate = one.option.fate if one.option else "not an option of srun itself; a plug-in of the site may have it"
        if within and one.name == "container-workdir" and one.value and not needs_shell(one.value):
            launch.before.append(f"cd {shlex.quote(one.value)}")
            continue
        if one.name == "chdir" and one.value:
            launch.before.append(f"cd {one.value if needs_shell(one.value) else shlex.quote(one.value)}")
            continue
        if one.name == "export":
            pairs = exported(one.value)
            launch.env = {**pairs, **launch.env}
            if (one.value or "ALL").upper().startswith("ALL") and not any(map(needs_shell, pairs.values())):
                continue
            fate = EXPORTED
        if is_of_vetting(one.text):
            fate = VETTED
        elif within and one.name in IN_THE_EDF:
            fate = f"the EDF says it: {IN_THE_EDF[one.name]}"
        elif fate == CARRY and one.name in OF_THE_JOB and not needs_shell(one.value or ""):
            carried.append(long_form(one))
            continue
        if fate != LAYOUT:
            why = {DROP: "an option of srun that Cordée does not need", CARRY: OF_THE_STEP}.get(fate, fate)
            kinds.setdefault(why, []).append(one.text)
    for why, texts in kinds.items():
        launch.leave(" ".join(texts), why)
    return carried
