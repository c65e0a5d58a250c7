"""Slurm's commands as both sides use them: run with a time limit, with busy told from refused, and their records parsed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Callable, Mapping, NamedTuple, Optional, Sequence

from cordee.core.errors import CordeeError

COMMENT_PREFIX = "cordee:"
_COMMAND_S = 30.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
_BUSY = re.compile(
    r"unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)|zero bytes were transmitted|"
    r"temporarily unable|try again|communication connection failure|slurmdbd.*(down|not responding)|"
    r"primary.*not responding|controller not (responding|ready)|backup.*standby|message (send|receive) failure|"
    r"transport endpoint|in standby mode|unexpected message received",
    re.IGNORECASE,
)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w:/.-]*)=")
ENDED_STATES = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
# sbatch lets these variables override a script's own lines; a person may set them for what the script leaves open.
_SITE_DEFAULTS = ("ACCOUNT", "PARTITION", "QOS", "RESERVATION", "CONSTRAINT")
_KEPT = frozenset(["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"])
HELD_STATES = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
WAITING_STATES = frozenset(["PENDING", "REQUEUED", "REQUEUE_FED", "CONFIGURING", *HELD_STATES])


class SlurmError(CordeeError):
    """A Slurm command failed.

    Attributes:
        busy: the controller could not be reached or was too busy; the same command may succeed later.
        missing: the command is not installed here.
        said: what it wrote to standard error.
    """

    kind = "submit"

    def __init__(self, argv: Sequence[str], said: str, *, busy: bool = False, missing: bool = False) -> None:
        words = " ".join(said.split())
        super().__init__(f"{argv[0]}: {words[:600] or 'failed without a word'}", given=" ".join(argv)[:300])
        self.said, self.busy, self.missing = said, busy, missing


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float = _COMMAND_S,
    stdin: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
) -> str:
    """Run a Slurm command once and return its standard output.

    Raises:
        SlurmError: it failed, took longer than `timeout_s` (busy), or is not installed (missing).
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=dict(os.environ if env is None else env, LC_ALL="C", SLURM_TIME_FORMAT="standard"),
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(argv, "not found: Slurm's commands are not on PATH", missing=True) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(argv, f"no answer within {timeout_s:.0f} s", busy=True) from None
    except OSError as error:
        raise SlurmError(argv, str(error)) from error
    if done.returncode != 0:
        said = done.stderr or done.stdout
        raise SlurmError(argv, said, busy=bool(_BUSY.search(said)))
    return done.stdout


def patiently(
    ask: Callable[[], str],
    *,
    most_s: float,
    waiting: Optional[Callable[[SlurmError], None]] = None,
) -> str:
    """Call `ask` until the controller answers, with growing pauses.

    Args:
        ask: calls `run_command`.
        most_s: give up after this time and raise the last error.
        waiting: called with the error before each pause; it may raise to stop.

    Raises:
        SlurmError: refused, or still busy after `most_s`.
    """
    deadline, pause = time.monotonic() + most_s, _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except SlurmError as error:
            if not error.busy or time.monotonic() + pause > deadline:
                raise
            if waiting is not None:
                waiting(error)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def parse_records(text: str) -> list[dict[str, str]]:
    """Return the records of `scontrol show ... --oneliner`: one dictionary of `Key=value` for each line."""
    records = []
    for line in text.splitlines():
        fields = list(_FIELD.finditer(line))
        ends = [field.start() for field in fields[1:]] + [len(line)]
        record = {field.group(1): line[field.end() : end].strip() for field, end in zip(fields, ends)}
        if record:
            records.append(record)
    return records


def job_record(job: str, *, timeout_s: float = _COMMAND_S) -> Optional[dict[str, str]]:
    """Return what the controller knows of a job (`JobState`, `Reason`, `Restarts`, `BatchHost`, ...); None when it has
    forgotten it.

    Raises:
        SlurmError: the controller does not answer.
    """
    try:
        records = parse_records(run_command(["scontrol", "show", "job", "--oneliner", job], timeout_s=timeout_s))
    except SlurmError as error:
        if "Invalid job id" in error.said:
            return None
        raise
    return records[0] if records else None


class QueuedJob(NamedTuple):
    """One line of squeue: `state` as Slurm spells it (`PENDING`), `reason` why it waits, `comment` given at submission."""

    id: str
    state: str
    reason: str
    comment: str

    @property
    def active(self) -> bool:
        """Whether it holds nodes or waits for them."""
        return self.state not in ENDED_STATES and self.state != "COMPLETING"


def my_jobs(*, timeout_s: float = _COMMAND_S) -> list[QueuedJob]:
    """Return this user's jobs that the controller still knows, ended ones included, in one question.

    Raises:
        SlurmError: the controller does not answer, or squeue is missing.
    """
    argv = ["squeue", "--noheader", f"--user={os.geteuid()}", "--states=all", "--format=%i|%T|%r|%k"]
    lines = run_command(argv, timeout_s=timeout_s).splitlines()
    return [QueuedJob(*(field.strip() for field in line.split("|", 3))) for line in lines if line.count("|") >= 3]


def submission_environment(script: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `environ` without what would change a script's own lines or tell a job about another one.

    Args:
        script: the text of the batch script.
    """
    env = {}
    for name, value in environ.items():
        if name.startswith("SBATCH_"):
            option = name[len("SBATCH_") :]
            given = f"#SBATCH --{option.lower()}" in script
            if option in _SITE_DEFAULTS and not given:
                env[name] = value
        elif name in _KEPT or not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "CORDEE_")):
            env[name] = value
    return env


def submit_once(
    script: Path,
    comment: str,
    *,
    most_s: float,
    ask_first: bool,
    after: Optional[str] = None,
    after_success: Optional[str] = None,
    waiting: Optional[Callable[[SlurmError], None]] = None,
) -> str:
    """Submit a batch script and return the job's id; a job with this comment that waits or runs is taken instead.

    Args:
        script: path of the script, which sets `comment` itself.
        comment: what tells its jobs from all others.
        most_s: how long to go on while the controller is busy or down.
        ask_first: whether an earlier submission may have been accepted.
        after: a job that must have ended before this one starts, and that does not count as one of the script's own.
        after_success: a job that must have succeeded before this one starts; else Slurm takes this one out of the queue.
        waiting: as for `patiently`.

    Raises:
        SlurmError: refused, or still busy after `most_s`.
        OSError: the script cannot be read.
    """
    env = submission_environment(script.read_text())
    dependency = [f"--dependency=afterany:{after}"] if after else []
    if after_success:
        dependency = [f"--dependency=afterok:{after_success}", "--kill-on-invalid-dep=yes"]
    asking = ask_first

    def attempt() -> str:
        nonlocal asking
        if asking:
            there = [job.id for job in my_jobs() if job.comment == comment and job.active and job.id != after]
            if there:
                return there[0]
        asking = True
        return run_command(["sbatch", "--parsable", *dependency, str(script)], env=env).split(";")[0].strip()

    return patiently(attempt, most_s=most_s, waiting=waiting)
