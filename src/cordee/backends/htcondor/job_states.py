"""Where a job of HTCondor stands and how it ended: the words of `show`, `watch` and `advise`."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from cordee.backends.htcondor.holds import hold_of
from cordee.backends.htcondor.queue import COMPLETED, HELD, IDLE, REMOVED, SENDING, SUSPENDED, CondorJob
from cordee.core.units import utc_text

EVICTED = "it had to leave its machine; it goes on when there is another"


class JobState(NamedTuple):
    """Where a job stands.

    Attributes:
        standing: the word that the submit seam has for it.
        rule: the name of its finding; empty: there is nothing to say.
        text: a clause that can stand after "because".
        next: what to do, empty: nothing.
        change: what to set in cordee.toml, by dotted key; empty: nothing.
    """

    standing: Literal["waiting", "held", "running", "suspended"]
    rule: str = ""
    text: str = ""
    next: str = ""
    change: dict[str, Any] = {}  # noqa: RUF012


def state_of(job: CondorJob) -> JobState:
    """Return where a job stands that is in the queue."""
    if not job.made and job.status == HELD:
        return JobState("held", "", job.text("HoldReason"), f"`condor_release {job.text('ClusterId')}`")
    if not job.made:
        return JobState("waiting", "", "not yet in the queue of jobs: HTCondor makes it a job as others leave")
    if job.status == IDLE:
        return JobState("waiting", "evicted", EVICTED) if job.starts else JobState("waiting")
    if job.status == HELD:
        return JobState("held", *hold_of(job))
    if job.status == SUSPENDED:
        return JobState(
            "suspended", "suspended", "its machine is busy with something else", "it goes on when its machine is free"
        )
    if job.silent_since is not None:
        since = f"{utc_text(job.silent_since)[:19]}Z"
        text = f"its machine has not answered since {since}; if it stays silent the job starts on another"
        return JobState("running", "silent-machine", text)
    if job.ad.get("TransferringInput"):
        return JobState("running", "arriving", "what it needs is on its way to the machine")
    if job.status == SENDING or job.ad.get("TransferringOutput"):
        return JobState("running", "coming-home", "its results are on their way home")
    return JobState("running")


def logged_end(events: str, job: str) -> str:
    """Return how a job has ended by the text of its event log, as `end_words` says it; empty where that does not say."""
    cluster, _, process = job.partition(".")
    found = re.findall(rf"^(005|009) \(0*{cluster}\.0*{process}\.\d+\) .*\n\s+(\S.*)", events, re.MULTILINE)
    if not found:
        return ""
    event, said = found[-1]
    if event == "009":
        return f"CANCELLED {said}"
    return "COMPLETED" if "(return value 0)" in said else f"FAILED {said}"


def end_words(job: CondorJob) -> str:
    """Return how a job has ended, beginning with one of the words that ends of runs are known by."""
    if job.status == REMOVED:
        return f"CANCELLED {job.text('RemoveReason')}".strip()
    if job.ad.get("ExitBySignal"):
        return f"FAILED signal {job.text('ExitSignal')}"
    code = job.ad.get("ExitCode")
    return "COMPLETED" if job.status == COMPLETED and code == 0 else f"FAILED exit code {code}"
