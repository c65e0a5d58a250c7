"""The submit seam for Slurm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cordee.backends.slurm.job_states import JobStates, SlurmJobStates
from cordee.backends.slurm.node.commands import (
    COMMENT_PREFIX,
    ENDED_STATES,
    WAITING_STATES,
    SlurmError,
    job_record,
    my_jobs,
    patiently,
    run_command,
    submit_once,
)
from cordee.backends.slurm.node.job import SCRIPT_NAME
from cordee.backends.slurm.reasons import LAUNCH_HOLD, STATES, hold_of, split_reason
from cordee.core.errors import SubmitError
from cordee.job.submit._base import Standing, Submitter
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay

_PATIENCE_S = 300.0


class SlurmSubmitter(Submitter):
    """Hands runs to the Slurm that this machine's commands talk to."""

    script_name = SCRIPT_NAME
    poll_s = 10.0

    def __init__(self) -> None:
        self._asking = SlurmJobStates()

    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return the batch script."""
        from cordee.backends.slurm.script import batch_script

        return batch_script(folder, plan)

    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Submit the script and return the job's id; a job of the run that waits or runs is kept instead."""
        return self._submit(folder, plan, None)

    def submit_after(self, folder: RunFolder, plan: dict[str, Any], job: str) -> str:
        """See SubmitsAfter."""
        return self._submit(folder, plan, job)

    def _submit(self, folder: RunFolder, plan: dict[str, Any], after_success: str | None) -> str:
        events = read_journal(folder.journal)
        asked_before = any(event["event"] in ("placing", "placed") for event in events)
        journal = client_journal(folder.journal)
        journal.append("placing")
        try:
            job = submit_once(
                folder.submit / self.script_name,
                COMMENT_PREFIX + folder.id,
                most_s=_PATIENCE_S,
                ask_first=asked_before or after_success is not None,
                after_success=after_success,
                waiting=self._tell_waiting,
            )
        except SlurmError as error:
            from cordee.backends.slurm.refused import refused

            trouble = refused(error, folder.id, plan["steps"][0]["request"]["scheduler"])
            if not error.busy:
                journal.append(
                    "ended", state="failed", exit_code=trouble.exit_code, reason="refused", text=trouble.text
                )
            raise trouble from error
        except OSError as error:
            raise SubmitError(f"the batch script cannot be read: {error.strerror}", given=str(folder.submit)) from error
        journal.append("placed", job=job)
        return job

    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Return what Slurm last said of the runs' jobs."""
        jobs = [replay(read_journal(folder.journal), folder.id).job for folder in folders]
        answer = self._asking.answer([job for job in jobs if job], age_s=age_s)
        found = [_standing(folder, job, answer) for folder, job in zip(folders, jobs, strict=True)]
        return [replace(standing, at=answer.at) for standing in found]

    def cancel(self, folder: RunFolder) -> None:
        """Have Slurm end all jobs of the run.

        Raises:
            SubmitError: the controller did not answer for minutes.
        """

        def end() -> str:
            comment = COMMENT_PREFIX + folder.id
            ids = [job.id for job in my_jobs() if job.comment == comment and job.active]
            return run_command(["scancel", *ids]) if ids else ""

        try:
            patiently(end, most_s=_PATIENCE_S, waiting=self._tell_waiting)
        except SlurmError as error:
            raise SubmitError(
                f"Slurm did not end the job: {error.text}", given=folder.id, next="try `cordee cancel` again later"
            ) from error

    def release(self, job: str) -> bool:
        """See ReleasesHolds."""
        try:
            record = job_record(job) or {}
        except SlurmError:
            return False
        if not _launch_hold(record.get("Reason", "")):  # an answer that is shared is older than a person's hold may be
            return False
        run_command(["scontrol", "release", job])
        return True

    @staticmethod
    def _tell_waiting(error: SlurmError) -> None:
        say(f"cordee: Slurm's controller does not answer, trying again: {error.text}")


def _standing(folder: RunFolder, job: str | None, answer: JobStates) -> Standing:
    comment = COMMENT_PREFIX + folder.id
    status = answer.jobs.get(job or "")
    if status is not None and status.comment.startswith(COMMENT_PREFIX) and status.comment != comment:
        status = None  # a controller that lost its state has given the id to another run
    if status is None or status.state in ENDED_STATES:
        others = [(found, other) for found, other in answer.jobs.items() if other.comment == comment]
        active = [(found, other) for found, other in others if other.state not in ENDED_STATES]
        job, status = active[0] if active else (job, status)
    gone_s = answer.at - answer.gone.get(job or "", answer.at)
    if status is None:
        if not answer.complete or (job is not None and job not in answer.asked_for):
            return Standing("unknown", job, answer.trouble)
        return Standing("gone", job, "Slurm does not know it any more" if job else "it was never placed", gone_s)
    if status.state in ENDED_STATES:
        return Standing("gone", job, " ".join(filter(None, (status.state, status.reason))), gone_s)
    if status.state in WAITING_STATES:
        hold = hold_of(status.state, status.reason)
        if hold is None:
            return Standing("waiting", job, status.reason)
        releasable = _launch_hold(status.reason)
        return Standing("held", job, status.reason, next=hold.next.format(job=job), releasable=releasable)
    if status.state == "SUSPENDED":
        return Standing("suspended", job, next=STATES[status.state].next)
    return Standing("running", job)


def _launch_hold(reason: str) -> bool:
    return split_reason(reason)[0] == LAUNCH_HOLD
