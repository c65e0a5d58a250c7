"""The Slurm job that a process runs in: why it ends, and how the run goes on in the next one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Mapping, Optional

from cordee.backends.slurm.node.commands import (
    COMMENT_PREFIX,
    SlurmError,
    job_record,
    parse_records,
    patiently,
    run_command,
    submit_once,
)
from cordee.core.hostlist import expand_nodes
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal

SCRIPT_NAME = "job.sbatch"
_GO_ON_S = 600.0
_ASK_S = 20.0
_SCRIPT_KILLED = ("JobLaunchFailure", "RaisedSignal")
_STATES = {
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_lost",
    "BOOT_FAIL": "node_lost",
    "CANCELLED": "cancelled",
    "OUT_OF_MEMORY": "killed",
}


@dataclass(frozen=True)
class JobStart:
    """One start of a job: a requeued job is another allocation.

    Attributes:
        job: its id.
        requeues: how often it had been requeued when this one began.
        node: this node's name in Slurm.
        started: when the batch script began, UTC epoch seconds; None when it did not say.
    """

    job: str
    requeues: int
    node: str
    started: Optional[float] = None

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> Optional[JobStart]:
        """Return the allocation that this process runs in, None outside of any."""
        job = environ.get("SLURM_JOB_ID")
        if not job:
            return None
        started = environ.get("CORDEE_JOB_STARTED")
        return cls(
            job,
            int(environ.get("SLURM_RESTART_COUNT") or 0),
            environ.get("SLURMD_NODENAME", ""),
            float(started) if started else None,
        )

    def document(self) -> dict[str, Any]:
        """Return what tells this allocation from others, as records and the journal have it."""
        return {"job": self.job, "requeues": self.requeues}

    def fate(self) -> str:
        """Ask the controller what is to become of this allocation.

        Returns:
            running; preempted (it may run on for a while); requeued (Slurm starts it again by itself); cancelled;
            time_limit; node_lost; killed (its batch script was); ended (its batch script came to its end); or unknown (no
            answer).
        """
        try:
            return self._fate_now()
        except SlurmError as error:
            say(f"cordee: cannot ask about job {self.job}: {error}")
            return "unknown"

    def _requeue(self, known: list[str]) -> str:
        """Requeue the job unless that has been done: an earlier try may have been accepted although nobody answered.

        Args:
            known: what the controller has just said, which is taken out; then it is asked.
        """
        if (known.pop() if known else self._fate_now()) == "requeued":
            return ""
        return run_command(["scontrol", "requeue", self.job], timeout_s=_ASK_S)

    def _fate_now(self) -> str:
        return fate_of(job_record(self.job, timeout_s=_ASK_S), self.requeues)

    def look(self, script_node: str = "") -> tuple[str, bool]:
        """Ask the controller what is to become of this allocation, in the words of `fate`, and whether it has noticed that
        the node of the batch script is lost; not noticed where nobody answers.

        Args:
            script_node: the node; empty: where the controller says that the script is, which after a restart is another node
                than the one that the job has lost.
        """
        try:
            record = job_record(self.job, timeout_s=_ASK_S)
            fate = fate_of(record, self.requeues)
            if record is None or fate not in ("running", "preempted"):
                return fate, False
            return fate, self._node_lost(script_node or record.get("BatchHost", ""), record.get("NodeList", ""))
        except SlurmError as error:
            say(f"cordee: cannot ask about job {self.job}: {error}")
            return "unknown", False

    def _node_lost(self, name: str, nodes: str) -> bool:
        """Return whether a node of the job is down, or was since the script began: Slurm then took it from the job's `nodes`."""
        if not name or (nodes and name not in expand_nodes(nodes)):
            return True
        shown = parse_records(run_command(["scontrol", "show", "node", "--oneliner", name], timeout_s=_ASK_S))
        return any("DOWN" in node.get("State", "") or self._booted_since(node.get("BootTime", "")) for node in shown)

    def _booted_since(self, time: str) -> bool:
        try:
            return self.started is not None and datetime.fromisoformat(time).timestamp() > self.started
        except ValueError:
            return False

    def cancel(self) -> None:
        """End the job; one that has ended is left alone.

        Raises:
            SlurmError: it runs on: refused, or the controller did not answer for ten minutes.
        """
        try:
            patiently(lambda: run_command(["scancel", self.job]), most_s=_GO_ON_S)
        except SlurmError as error:
            if error.busy or self.fate() in ("running", "preempted", "unknown"):
                raise

    def go_on(self, folder: RunFolder, how: str, fate: str = "unknown") -> dict[str, Any]:
        """Have Slurm run the batch script again, and return `{how, job}`.

        Args:
            how: requeue (this job; a new one where Slurm refuses) or resubmit (a new job once this one has ended).
            fate: what the controller has just said of this allocation; killed: nobody else has had it requeued.

        Raises:
            SlurmError: refused, or the controller did not answer for ten minutes.
        """
        if how == "requeue":
            try:
                known = ["killed"] if fate == "killed" else []
                patiently(lambda: self._requeue(known), most_s=_GO_ON_S)
                return {"how": "requeue", "job": self.job}
            except SlurmError as error:
                if error.busy:
                    raise
                if self._fate_now() == "requeued":
                    return {"how": "requeue", "job": self.job}
                say(f"cordee: job {self.job} cannot be requeued, another one is submitted: {error}")
        script = folder.submit / SCRIPT_NAME
        comment = COMMENT_PREFIX + folder.id
        job = submit_once(script, comment, most_s=_GO_ON_S, ask_first=True, after=self.job)
        return {"how": "resubmit", "job": job}


def place(folder: RunFolder) -> str:
    """Submit the batch script of a run, unless a job of it waits or runs, and return the job's id.

    Raises:
        SlurmError: refused, or the controller did not answer for ten minutes.
    """
    journal = client_journal(folder.journal)
    journal.append("placing")
    comment, script = COMMENT_PREFIX + folder.id, folder.submit / SCRIPT_NAME
    job = submit_once(script, comment, most_s=_GO_ON_S, ask_first=True)
    journal.append("placed", job=job)
    return job


def fate_of(record: Optional[Mapping[str, str]], requeues: int) -> str:
    """Return what a record of `scontrol show job` says of an allocation; the words are those of `JobStart.fate`.

    While a job ends, Slurm shows COMPLETING instead of the state that it will have: then the reason and the count of
    restarts tell a cancelled job from one that was requeued or whose script was killed.
    """
    if record is None:
        return "unknown"
    state, reason = record.get("JobState", ""), record.get("Reason", "")
    if _count(record.get("Restarts")) > requeues:
        return "requeued"
    if state in ("RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"):
        return "running" if record.get("PreemptTime", "None") in ("None", "N/A", "Unknown", "") else "preempted"
    if reason == "TimeLimit":
        return "time_limit"
    if state in _STATES:
        return _STATES[state]
    if state in ("PENDING", "REQUEUED"):
        return "requeued"
    if state not in ("COMPLETING", "COMPLETED", "FAILED"):
        return "unknown"
    code, _, number = record.get("ExitCode", "0:0").partition(":")
    if reason in _SCRIPT_KILLED or number not in ("0", ""):
        return "killed"
    return "ended" if code != "0" or state != "COMPLETING" else "cancelled"


def _count(text: Optional[str]) -> int:
    return int(text) if text and text.isdigit() else 0
