"""The options of sbatch and srun: what each is called, whether it takes a value, and what becomes of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LAYOUT = "layout"  # has a key in [need] or [checkpoint] or of its own, or says how many ranks there are
CARRY = "carry"  # goes to [slurm] options as it is
DROP = "drop"  # means nothing more once Cordée starts the ranks

_RETRIED = "Cordée asks for a requeue by itself as the cluster's profile says (`requeue = ...` there)"
_LOGS = "every rank's output is in the run's folder: `cordee logs RUN`"
_STEP = "each training is a run of its own: one `cordee run` for each value, such as `--set env.TASK_ID=1`"
_ORDER = "Cordée continues a run by itself; start this one when what it waits for is done"
_WHOM = "the job runs as whoever submits it, with the environment of the submission"
_CLIENT = "about the submission itself: `cordee run` waits, `cordee run --detach` does not"
_IMAGE = "write an EDF with this image and its mounts, and name it: environment = ..."
# Options of srun alone that mean the same for the whole job.
OF_THE_JOB = ("network", "cpu-freq", "gpu-freq", "profile", "acctg-freq", "licenses", "switches")
OF_THE_STEP = "an option for one step: ask for it for the whole job, in [slurm] options"
# What pyxis says beside an EDF, and where the EDF says it.
IN_THE_EDF = {
    "container-image": "image",
    "container-mounts": "mounts",
    "container-workdir": "workdir",
    "container-env": "[env]",
    "container-writable": "writable = true",
    "container-mount-home": 'mounts = ["${HOME}"]',
    "no-container-mount-home": "mounts",
    "container-entrypoint": "entrypoint = true",
    "no-container-entrypoint": "entrypoint = false",
}
OF_A_SHELL = "options of srun that only the shell knows: say in the document what they ask for"
EXPORTED = "the ranks get the environment of the submission; [env] and `setup` add to it"
_TASKS = "one agent per node starts the ranks; ranks_per_node says how many"

# Each entry: long name, "/" and a short one, then "" no value, "=" a value, "?" a value only after "=".
_SBATCH = {
    LAYOUT: "account/A= chdir/D= constraint/C= cpus-per-gpu= cpus-per-task/c= environment= exclusive? export? gpus/G= gpus-per-node= "
    "gpus-per-task= gres= job-name/J= mem= mem-per-cpu= mem-per-gpu= nodes/N= ntasks/n= ntasks-per-gpu= ntasks-per-node= "
    "partition/p= qos/q= reservation= signal= time/t= tasks-per-node=",
    CARRY: "acctg-freq= batch= bb= bbf= begin/b= cluster-constraint= contiguous core-spec/S= cores-per-socket= "
    "cpu-freq= deadline= delay-boot= exclude/x= extra-node-info/B= gpu-freq= gres-flags= hint= hold/H "
    "licenses/L= mail-type= mail-user= mcs-label= mem-bind= network= nice? nodefile/F= nodelist/w= oversubscribe/s? "
    "power= prefer= priority= profile= propagate? reboot sockets-per-node= spread-job switches= thread-spec= "
    "threads-per-core= tmp= use-min-nodes wckey=",
    DROP: "ignore-pbs no-kill/k? verbose/v quiet/Q wait-all-nodes=",
    _RETRIED: "requeue no-requeue",
    _LOGS: "output/o= error/e= input/i= open-mode=",
    _STEP: "array/a=",
    _ORDER: "dependency/d= kill-on-invalid-dep=",
    _WHOM: "export-file= get-user-env? uid= gid=",
    _CLIENT: "wait/W parsable test-only wrap=",
    _IMAGE: "container= container-image= container-mounts= container-workdir= container-name= container-env= "
    "container-mount-home no-container-mount-home container-writable container-remap-root uenv= view=",
    _TASKS: "distribution/m= gpu-bind= ntasks-per-core= ntasks-per-socket= overcommit/O",
    "choose the cluster with `--on CLUSTER`": "clusters/M=",
    "ask for it with [need] time, cpus_per_rank or gpus_per_node": "time-min= mincpus= gpus-per-socket=",
    "it belongs to Cordée, which finds its jobs by it": "comment=",
}
_SRUN = {
    DROP: "cpu-bind= exact het-group= immediate/I? jobid= kill-on-bad-exit/K? label/l overlap preserve-env/E "
    "quit-on-interrupt/q unbuffered/u wait/W= threads/T= resv-ports? mem-bind= disable-status/X exclusive? export? "
    "propagate? ntasks-per-core= hint= accel-bind= no-container-entrypoint container-entrypoint",
    LAYOUT: "mpi=",
    _TASKS: "relative/r= multi-prog",
    "a file is sent by [data] or a set-up line": "bcast? compress? send-libs?",
    "a set-up line in `setup` runs before the ranks, on every node": "prolog= epilog= task-prolog= task-epilog=",
    "`cordee shell RUN` opens a shell in a run": "pty",
}
_QUOTED = re.compile(r"[\s'\"#\\]")
_RENAMED = {"tasks-per-node": "ntasks-per-node"}


@dataclass(frozen=True)
class SbatchOption:
    """One option: `takes` is "" (no value), "=" (a value) or "?" (a value only behind "=")."""

    name: str
    short: str
    takes: str
    fate: str


@dataclass(frozen=True)
class GivenOption:
    """An option as it was given; `value` is None without one, `option` is None for a name that nobody knows."""

    option: SbatchOption | None
    value: str | None
    text: str
    line: int

    @property
    def name(self) -> str:
        return self.option.name if self.option else ""


def option_table(fates: Mapping[str, str]) -> dict[str, SbatchOption]:
    table = {}
    for fate, names in fates.items():
        for entry in names.split():
            name, _, short = entry.rstrip("=?").partition("/")
            takes = entry[len(entry.rstrip("=?")) :]
            option = SbatchOption(_RENAMED.get(name, name), short, takes, fate)
            table[name] = option
            if short:
                table[short] = option
    return table


SBATCH_OPTIONS = option_table(_SBATCH)
SRUN_OPTIONS = {**SBATCH_OPTIONS, **option_table(_SRUN)}


def parse_options(
    words: Sequence[str], table: Mapping[str, SbatchOption], line: int
) -> tuple[list[GivenOption], list[str]]:
    """Return the options at the beginning of `words` as getopt_long reads them, and the words from the first other one.

    Long names may be shortened while they stay unique. An unknown option takes no value.
    """
    given: list[GivenOption] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = _long(name, table)
            taken = value if equals else None
            if option is not None and option.takes == "=" and not equals and rest:
                taken = rest.pop(0)
                word += f" {taken}"
            given.append(GivenOption(option, taken, word, line))
        else:
            given += _bundle(word[1:], rest, table, line)
    return given, rest


def _long(name: str, table: Mapping[str, SbatchOption]) -> SbatchOption | None:
    if name in table and len(name) > 1:
        return table[name]
    found = {option.name: option for known, option in table.items() if len(known) > 1 and known.startswith(name)}
    return next(iter(found.values())) if len(found) == 1 and name else None


def _bundle(letters: str, rest: list[str], table: Mapping[str, SbatchOption], line: int) -> list[GivenOption]:
    """Return the options of one word such as `-lu` or `-N4`; a value may be the next of `rest`, which it is taken from."""
    given: list[GivenOption] = []
    while letters:
        letter, letters = letters[0], letters[1:]
        option, value, text = table.get(letter), None, f"-{letter}"
        if option is None:
            return [*given, GivenOption(None, None, f"-{letter}{letters}", line)]
        if option.takes and letters:
            value, letters, text = letters, "", f"-{letter}{letters}"
        elif option.takes == "=" and rest:
            value = rest.pop(0)
            text += f" {value}"
        given.append(GivenOption(option, value, text, line))
    return given


def last_values(given: Sequence[GivenOption]) -> dict[str, GivenOption]:
    """Return the option that counts for each name: the last one."""
    return {one.name: one for one in given if one.option is not None}


def exported(value: str | None) -> dict[str, str]:
    """Return the variables of `--export=ALL,NAME=value`."""
    pairs = (part.partition("=") for part in (value or "").split(",") if "=" in part)
    return {name: text for name, _, text in pairs if name.isidentifier()}


def long_form(one: GivenOption) -> str:
    """Return a known option as `--name=value`, in quotes where sbatch needs them."""
    if one.value is None:
        return f"--{one.name}"
    return f"--{one.name}={shlex.quote(one.value) if _QUOTED.search(one.value) else one.value}"
