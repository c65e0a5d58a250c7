"""What the parts of the Slurm benchmark share: job folders, waiting, plain batch jobs, rows of numbers."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cordee.backends.slurm.node.commands import run_command
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.daemons import clean_environment

CORDEE = [sys.executable, "-m", "cordee.faces.cli"]
# A limit of the load of one machine means nothing where many nodes share two cores.
PATIENT = {"vet.max_load": 1000.0}
POLL_S = 0.01
QUEUE_POLL_S = 0.1
_GONE = ("", "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY")

Found = TypeVar("Found")


@dataclass
class Rows:
    """Measured seconds by name, in the order of their first value; `notes` are printed below the table."""

    title: str
    values: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, seconds: float) -> None:
        """Take one value."""
        self.values.setdefault(name, []).append(seconds)
        print(f"  {name}: {seconds:.3f}", file=sys.stderr, flush=True)

    def compare(self, name: str, against: str) -> None:
        """Note the medians of the differences and ratios of two rows whose values were measured in pairs."""
        if name not in self.values or against not in self.values:
            return
        pairs = list(zip(self.values[name], self.values[against], strict=False))
        difference = statistics.median(mine - other for mine, other in pairs)
        ratio = statistics.median(mine / other for mine, other in pairs)
        self.notes.append(
            f"{name} against {against}: {difference:+.3f} s, ratio {ratio:.2f} (medians of {len(pairs)} pairs)"
        )

    def table(self) -> str:
        """Return the rows as Markdown."""
        lines = [f"## {self.title}", "", "| what | n | median s | least | most |", "|---|---|---|---|---|"]
        for name, values in self.values.items():
            middle = statistics.median(values)
            lines.append(f"| {name} | {len(values)} | {middle:.3f} | {min(values):.3f} | {max(values):.3f} |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), ""])


def write_job(folder: Path, script: str, need: str, *, words: str = "", name: str = "b") -> Path:
    """Write a job folder with `train.py`; it runs with this interpreter, as plain batch jobs do."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    command = " ".join([sys.executable, "train.py", words]).strip()
    (folder / "cordee.toml").write_text(f'name = "{name}"\nrun = "{command}"\n[need]\n{need}\n')
    return folder


def plain_script(folder: Path, options: Sequence[str], *, words: str = "", head: str = "") -> Path:
    """Write what people write without Cordée: `srun python train.py` in a batch script."""
    path = folder / "plain.sbatch"
    lines = [f"#SBATCH {option}" for option in [*options, f"--output={folder}/plain-%j.out", "--open-mode=append"]]
    command = f"srun {sys.executable} {folder}/train.py {words}".rstrip()
    path.write_text("\n".join(["#!/bin/bash", *lines, head, command, ""]))
    return path


def until(find: Callable[[], Found], seconds: float = 120.0, pause: float = POLL_S) -> Found:
    """Return the first true value of `find`.

    Raises:
        TimeoutError: there was none in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing within {seconds:.0f} s from {find}")
        time.sleep(pause)


def marks(text: str, word: str) -> list[tuple[int, float]]:
    """Return (number, time) of every whole line `word NUMBER TIME`."""
    return [(int(number), float(at)) for number, at in re.findall(rf"^{word} (\d+) ([\d.]+)$", text, re.MULTILINE)]


def text_of(path: Path) -> str:
    """Return a file's whole lines; nothing while there is no file."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return text[: text.rfind("\n") + 1]


def job_state(job: str) -> str:
    """Return a job's state in squeue's words, empty when it is not shown."""
    return run_command(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).strip()


def wait_gone(job: str, seconds: float = 120.0) -> float:
    """Return when squeue first showed the job neither running nor completing."""
    until(lambda: job_state(job) in _GONE, seconds, QUEUE_POLL_S)
    return time.time()


def sbatch(*argv: str) -> str:
    """Submit and return the job's id."""
    return run_command(["sbatch", "--parsable", *argv]).split(";")[0].strip()


def settle(cluster: DisposableSlurm) -> None:
    """Return when no job is left and all nodes are idle, so that nothing of the last round is in the next."""
    cluster.clear()
    until(lambda: set(cluster.states().values()) == {"IDLE"}, 120, QUEUE_POLL_S)


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Kill a process that is left at the end of the block."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def led_to(cluster: DisposableSlurm, parent: Path) -> Iterator[None]:
    """Let the environment lead to a cluster, with no settings of the person and no answers of another Slurm."""
    before = dict(os.environ)
    clean = {name: value for name, value in clean_environment().items() if not name.startswith("CORDEE_")}
    own = {"XDG_CACHE_HOME": str(parent / "cache"), "XDG_CONFIG_HOME": str(parent / "config")}
    os.environ.clear()
    os.environ.update({**clean, **cluster.env, **own})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def settings(values: dict[str, Any]) -> list[str]:
    """Return values as flags of `cordee run`."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
