"""Asking an access point of HTCondor by its own commands, which always fit its version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.backends.htcondor.description import RUN_ATTRIBUTE, TOGETHER_ATTRIBUTE, runs_in
from cordee.runs.children import FOLDER
from cordee.runs.folder import RunFolder

_COMMAND_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
_BUSY = re.compile(
    r"Failed to (connect|fetch ads)|Can't find address|communication error|timed? ?out|Unable to locate|SECMAN",
    re.IGNORECASE,
)
# What JobMaterializePaused of a cluster says that makes no more jobs: it has no more, or was removed.
_NO_MORE = (2, 3)
IDLE, RUNNING, REMOVED, COMPLETED, HELD, SENDING, SUSPENDED = 1, 2, 3, 4, 5, 6, 7
_ATTRIBUTES = (
    "ClusterId",
    "ProcId",
    "JobStatus",
    "LastJobStatus",
    RUN_ATTRIBUTE,
    "RemoteHost",
    "NumShadowStarts",
    "ContainerImage",
    "HoldReason",
    "HoldReasonCode",
    "HoldReasonSubCode",
    "RemoveReason",
    "ExitCode",
    "ExitBySignal",
    "ExitSignal",
    "CompletionDate",
    "EnteredCurrentStatus",
    "JobDisconnectedDate",
    "JobCurrentStartDate",
    "VacateReason",
    "QDate",
    "LastMatchTime",
    "LastRejMatchTime",
    "LastRejMatchReason",
    "RequestCpus",
    "RequestMemory",
    "RequestDisk",
    "RequestGPUs",
    "GPUsMinMemory",
    "GPUsMinCapability",
    "RequireGPUs",
    "MemoryUsage",
    "ResidentSetSize",
    "DiskUsage",
    "TransferringInput",
    "TransferringOutput",
    "CordeeStep",
    "CordeeCheckpoint",
)


class HTCondorError(Exception):
    """A command of HTCondor that failed.

    Attributes:
        text: what it said.
        busy: whether trying again later may help.
        missing: whether it is not installed.
    """

    def __init__(self, argv: Sequence[str], said: str, *, busy: bool = False, missing: bool = False) -> None:
        plain = said.partition("Extra Info:")[0].strip() or said  # of what may be wrong with the set-up, at length
        lines = [line.strip() for line in plain.splitlines() if line.strip()]
        self.text = " ".join(lines)[-600:] or "it said nothing"
        self.argv, self.busy, self.missing = list(argv), busy, missing
        super().__init__(f"{argv[0]}: {self.text}")


@dataclass(frozen=True)
class CondorJob:
    """One job of a run, as the queue or the history has it."""

    ad: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.ad.get('ClusterId')}.{self.ad.get('ProcId')}"

    @property
    def run(self) -> str:
        return str(self.ad.get(RUN_ATTRIBUTE, ""))

    @property
    def status(self) -> int:
        return int(self.ad.get("JobStatus", 0))

    @property
    def made(self) -> bool:
        """Whether it is a job yet: of many that were submitted together, HTCondor makes some as others leave."""
        return not self.ad.get("NotMade")

    @property
    def active(self) -> bool:
        """Whether it waits, runs, or is held."""
        return self.status not in (REMOVED, COMPLETED)

    @property
    def starts(self) -> int:
        """How often it has been started."""
        return int(self.ad.get("NumShadowStarts", 0))

    @property
    def memory_used_mib(self) -> float:
        """The most memory that was seen of it; an answer has MemoryUsage as an expression of ResidentSetSize, in KiB."""
        return max(self.number("MemoryUsage"), self.number("ResidentSetSize") / 1024)

    @property
    def silent_since(self) -> float | None:
        """When the machine that it runs on answered last, in epoch seconds; None: it answers."""
        silent, began = (self.ad.get(name) or 0 for name in ("JobDisconnectedDate", "JobCurrentStartDate"))
        return float(silent) if silent > began else None

    def text(self, name: str) -> str:
        """Return an attribute as text, empty where there is none."""
        value = self.ad.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float:
        """Return an attribute as a number, 0 where there is none or an expression stands for it."""
        value = self.ad.get(name)
        return value if isinstance(value, (int, float)) else 0


def run_command(argv: Sequence[str], *, cwd: str | None = None, most_s: float = _COMMAND_S) -> str:
    """Run a command of HTCondor once and return its standard output.

    Raises:
        HTCondorError: it failed, took too long (busy), or is not installed (missing).
    """
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=most_s,
            env={**os.environ, "LC_ALL": "C"},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError:
        raise HTCondorError(argv, "not found: HTCondor's commands are not on PATH", missing=True) from None
    except subprocess.TimeoutExpired:
        raise HTCondorError(argv, f"no answer within {most_s:.0f} s", busy=True) from None
    except OSError as error:
        raise HTCondorError(argv, str(error)) from error
    if done.returncode != 0:
        said = done.stderr or done.stdout
        raise HTCondorError(argv, said, busy=bool(_BUSY.search(said)))
    return done.stdout


def patiently(ask: Callable[[], str], *, most_s: float, waiting: Callable[[HTCondorError], None]) -> str:
    """Call `ask` until the access point answers, with growing pauses.

    Args:
        ask: calls `run_command`.
        most_s: give up after this time and raise the last error.
        waiting: called with the error before each pause.

    Raises:
        HTCondorError: refused, or still busy after `most_s`.
    """
    deadline, pause_s = time.monotonic() + most_s, _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except HTCondorError as error:
            if not error.busy or time.monotonic() + pause_s > deadline:
                raise
            waiting(error)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def queued_jobs(run: str | None = None, *, most_s: float = _COMMAND_S) -> list[CondorJob]:
    """Return the jobs in the queue that are runs of Cordée, or those of one run, the newest last.

    Raises:
        HTCondorError: the access point does not answer.
    """
    constraint = f'{RUN_ATTRIBUTE} == "{run}"' if run else f"{RUN_ATTRIBUTE} isnt undefined"
    argv = ["condor_q", "-constraint", constraint, "-json", "-attributes", ",".join(_ATTRIBUTES)]
    return _jobs(run_command(argv, most_s=most_s))


def jobs_of(folders: Sequence[RunFolder], *, others: bool = False, most_s: float = _COMMAND_S) -> list[CondorJob]:
    """Return the jobs of runs, those that HTCondor has not made yet among them, the newest last; those of other runs may be there, too.

    Args:
        others: whether those are wanted.

    Raises:
        HTCondorError: the access point does not answer.
    """
    one = folders[0].id if len(folders) == 1 and not others else None
    below = {folder.id for folder in folders if folder.root.parent.name == FOLDER}
    jobs = queued_jobs(one, most_s=most_s)
    if below - {job.run for job in jobs}:
        jobs = [*_not_made(most_s), *jobs]
        if below - {job.run for job in jobs}:  # one that was made between the two answers is in neither
            jobs = [*jobs, *queued_jobs(one, most_s=most_s)]
    return jobs


def _not_made(most_s: float) -> list[CondorJob]:
    """Return the jobs of all runs that were submitted and that HTCondor has not made yet: only their cluster is in the queue."""
    names = ["ClusterId", "QDate", "JobMaterializeNextProcId", "JobMaterializePaused", "JobMaterializePauseReason"]
    names.append(TOGETHER_ATTRIBUTE)
    found = []
    for ad in read_ads(
        "condor_q", run_command(["condor_q", "-factory", "-json", "-attributes", ",".join(names)], most_s=most_s)
    ):
        paused, path = ad.pop("JobMaterializePaused", 0), ad.get(TOGETHER_ATTRIBUTE)
        if not path or paused in _NO_MORE:
            continue
        try:
            runs = runs_in(Path(path).read_text())
        except OSError:  # another's
            continue
        status = {"JobStatus": HELD if paused else IDLE, "HoldReason": ad.get("JobMaterializePauseReason", "")}
        for number in range(ad.get("JobMaterializeNextProcId", 0), len(runs)):
            found.append(CondorJob({**ad, **status, "ProcId": number, RUN_ATTRIBUTE: runs[number], "NotMade": True}))
    return found


def make_no_more(cluster: str) -> None:
    """Have HTCondor make no more jobs of a cluster; it leaves the queue with the last of those that are there.

    Raises:
        HTCondorError: it was refused, or the access point does not answer.
    """
    run_command(["condor_qedit", cluster, "JobMaterializePaused", str(_NO_MORE[0])])


def ended_jobs(clusters: Collection[str], most: int) -> list[CondorJob]:
    """Return jobs of clusters that have left the queue, `most` at most.

    Raises:
        HTCondorError: they cannot be read.
    """
    constraint = " || ".join(f"ClusterId == {cluster}" for cluster in sorted(clusters))
    argv = [
        "condor_history",
        "-constraint",
        constraint,
        "-limit",
        str(most),
        "-json",
        "-attributes",
        ",".join(_ATTRIBUTES),
    ]
    return _jobs(run_command(argv))


def ended_job(run: str, *, most_s: float = _COMMAND_S) -> CondorJob | None:
    """Return the job of a run that left the queue last, None where the history has none.

    Raises:
        HTCondorError: it cannot be read.
    """
    constraint = f'{RUN_ATTRIBUTE} == "{run}"'
    argv = ["condor_history", "-constraint", constraint, "-limit", "1", "-json", "-attributes", ",".join(_ATTRIBUTES)]
    return next(iter(_jobs(run_command(argv, most_s=most_s))), None)


def read_ads(command: str, text: str) -> list[dict[str, Any]]:
    """Return the ads of an answer in JSON.

    Raises:
        HTCondorError: it is none.
    """
    try:
        ads = json.loads(text.strip() or "[]")  # condor_q prints nothing where there is none
    except ValueError:
        raise HTCondorError([command], f"its answer is no JSON: {text[:200]}", busy=True) from None
    return [ad for ad in ads if isinstance(ad, dict)]


def _jobs(text: str) -> list[CondorJob]:
    jobs = [CondorJob(ad) for ad in read_ads("condor_q", text)]
    return sorted(jobs, key=lambda job: (job.ad.get("ClusterId", 0), job.ad.get("ProcId", 0)))
