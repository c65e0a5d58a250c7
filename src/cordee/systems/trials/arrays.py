"""Job arrays: a batch script with `#SBATCH --array`, understood as sbatch understands it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from cordee.backends.job_scripts.options import exported, long_form
from cordee.backends.slurm.sbatch.directives import Directives, read_directives
from cordee.backends.slurm.sbatch.layout import RequestedLayout, read_layout
from cordee.backends.slurm.sbatch.values import read_time
from cordee.core.errors import DocumentError
from cordee.machine.slots import SlotRequest

MOST_TASKS = 1_000_000
SCRIPT = "array.sh"
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z")
_ALLOWED = "0-99, 0-99:2, 1,4,9, 0-99%8"
# What is asked of the scheduler for the farm's own job, by its key in [need].
_OF_THE_JOB = ("account", "constraint", "partition", "qos", "reservation")


class JobArray(NamedTuple):
    """A job array.

    Attributes:
        indices: in the order in which they were given.
        at_once: how many of its tasks may run at the same time; None: as many as there is room for.
        asks: what each task needs of a node.
        time_s: how long each may take; None: as long as it wants.
        begin: what `sh` does before the script: variables, the folder.
        command: what runs the script, as its first line says.
        line: of the option.
        unheeded: what the script says and a farm does not do, each with what does it.
    """

    indices: list[int]
    at_once: int | None
    asks: SlotRequest
    time_s: float | None
    begin: str
    command: str
    line: int
    unheeded: tuple[str, ...]

    def task(self, place: int, job: int) -> str:
        """Return what `sh` runs for the task at a place of the array, which its tasks know by the number `job`.

        Inside a job of Slurm SLURM_JOB_ID stays that job's own, by which `srun` finds it.
        """
        step = min((b - a for a, b in zip(self.indices, self.indices[1:], strict=False)), default=1)
        facts = {
            "SLURM_ARRAY_JOB_ID": job,
            "SLURM_ARRAY_TASK_COUNT": len(self.indices),
            "SLURM_ARRAY_TASK_MIN": min(self.indices),
            "SLURM_ARRAY_TASK_MAX": max(self.indices),
            "SLURM_ARRAY_TASK_STEP": step,
            "SLURM_ARRAY_TASK_ID": self.indices[place],
        }
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        own = f'SLURM_JOB_ID="${{SLURM_JOB_ID:-{job + 1 + place}}}"'
        return f'export {words} {own}{self.begin}; exec {self.command} "$CORDEE_RUN_DIR/tasks/{SCRIPT}"'


def is_batch_script(text: str) -> bool:
    """Return whether a file is a script for sbatch: it begins with `#!` and has `#SBATCH` lines."""
    if not text.startswith("#!"):
        return False
    found = read_directives(text)
    return bool(found.given or found.left)


def read_array(path: Path, text: str) -> JobArray:
    """Return the job array of a batch script.

    Raises:
        DocumentError: it has none, or one that is not understood, or whose tasks need several nodes.
    """
    directives = read_directives(text)
    asked = read_layout(directives.given)
    if "array" not in asked.values:
        raise DocumentError(
            "a batch script is no list of commands, and this one has no #SBATCH --array before its first command",
            file=str(path),
            allowed="#SBATCH --array=0-99",
            next=f"add it; or `cordee init --from {path.name}` makes a job of the script; or --format lines takes each line as a command",
        )
    if asked.nodes > 1:
        raise DocumentError(
            "each task of the array asks for several nodes; a task of a farm runs on one",
            file=str(path),
            line=asked.values["nodes"].line if "nodes" in asked.values else 1,
            given=asked.nodes,
            allowed="1",
            next="submit it by sbatch, or make each task a job of its own: `cordee init --from`",
        )
    line, given = asked.values["array"].line, asked.text("array") or ""
    indices, at_once = _indices(path, line, given)
    asks = SlotRequest(asked.cpus or asked.tasks or 1, float(asked.gpus), asked.memory or 0)
    known = {**asked.known, "SLURM_CPUS_ON_NODE": str(asks.cores), **exported(asked.text("export"))}
    begin = "".join(f" {name}={shlex.quote(value)}" for name, value in known.items())
    folder = asked.text("chdir")
    begin += f"; cd {shlex.quote(folder)} || exit 1" if folder else ""
    words = text.split("\n", 1)[0][2:].split(maxsplit=1) if text.startswith("#!") else []
    command = " ".join(shlex.quote(word.strip()) for word in words) or "bash"
    time_s = read_time(asked.text("time") or "")
    unheeded = _unheeded(directives, asked)
    return JobArray(indices, at_once, asks, time_s, begin, command, line, unheeded)


def _unheeded(directives: Directives, asked: RequestedLayout) -> tuple[str, ...]:
    found = [f"{one.text} ({one.why})" for one in (*directives.left, *asked.left) if not _is_array(one.text)]
    for name in _OF_THE_JOB:
        if value := asked.text(name):
            found.append(
                f"{long_form(asked.values[name])} (give it to the farm: --set need.{name}={shlex.quote(value)})"
            )
    found += [f"{option} (give it to the farm's job: [slurm] options)" for option in asked.options]
    for name in ("environment", "signal"):
        if name in asked.values:
            found.append(f"{long_form(asked.values[name])} (give it to the farm's job, by --job)")
    return tuple(found)


def _is_array(text: str) -> bool:
    return text.startswith("--array")


def _indices(path: Path, line: int, given: str) -> tuple[list[int], int | None]:
    """Return the indices of `0-9:2,20%4`, and how many may run at once."""
    parts, percent, most = given.partition("%")
    indices: list[int] = []
    for part in parts.split(","):
        found = _PART.match(part)
        first, last, step = (int(found[1]), int(found[2] or found[1]), int(found[3] or 1)) if found else (1, 0, 1)
        wrong = first > last or step < 1 or (last - first) // step > MOST_TASKS
        if wrong or (percent and not (most.isdigit() and int(most[:9]))):
            text = "the indices of the array are not understood"
            raise DocumentError(text, file=str(path), line=line, given=given, allowed=_ALLOWED, next="correct the line")
        indices += range(first, last + 1, step)
    return sorted(set(indices)), int(most[:9]) if percent else None
