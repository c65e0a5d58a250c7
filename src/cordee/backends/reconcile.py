"""Ending a run in its journal when the place that held it has let go of it and nobody in it could write the end."""

from __future__ import annotations

import os
import time
from glob import escape

from cordee.control.supervisor.segments import last_sign
from cordee.core.backends import abilities
from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.core.units import utc_text
from cordee.job.submit import ReleasesHolds, Standing, plan_of, submitter
from cordee.job.submit.parent import open_children
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import RunState, replay

_WORDS = {
    "CANCELLED": "its job was cancelled",
    "TIMEOUT": "its job reached the time limit before the run could be queued again",
    "DEADLINE": "its job missed its deadline",
    "NODE_FAIL": "a node of its job failed",
    "BOOT_FAIL": "a node of its job did not start",
    "OUT_OF_MEMORY": "its job ran out of memory",
    "PREEMPTED": "its job was preempted",
    "COMPLETED": "its job ended without a last word",
    "FAILED": "its job failed",
}
_MAY_COME_BACK = ("FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "BOOT_FAIL", "OUT_OF_MEMORY")
_COMES_BACK_S = 60.0
# Samples are written every ten seconds, and the clocks of two machines and a file server need not agree.
_LIVES_S = 60.0


def settle(folder: RunFolder, standing: Standing) -> RunState:
    """Return the run's state, ended by what the scheduler says when the job is gone and the journal has no end.

    A job that failed may be on its way back: the agents have it requeued when its batch script was killed. And a run that
    wrote something after Slurm was asked, or shortly before, lives, whatever was said of its job: a controller that lost
    its state knows nothing of jobs that run, and may give their ids to others. None of that holds where the place has a
    record of the job's end. Time between the last sign of life and the end is nobody's training.
    """
    state = replay(read_journal(folder.journal), folder.id)
    if state.ended or standing.state != "gone" or standing.job is None:
        return state
    if state.state == "queued" and state.phases and (standing.at or state.phases[-1].start) < state.phases[-1].start:
        return state  # that was said of an earlier job, or of an earlier turn of this one
    word = standing.reason.split(" ")[0]
    asked_at = time.time() if standing.at is None else standing.at
    sign = last_sign(folder)
    if not standing.final:
        if word in _MAY_COME_BACK and standing.gone_s < _COMES_BACK_S:
            return state
        if (sign or 0.0) > asked_at - _LIVES_S:
            return state
    left_at = asked_at - standing.gone_s
    seen = min(left_at, sign) if state.state == "running" and sign is not None else left_at
    cancelled = word == "CANCELLED" or state.cancel_requested
    what = _WORDS.get(word, standing.reason)
    text = f"{what} (job {standing.job}: {standing.reason})"
    printed = next(folder.submit.glob(f"*-{escape(standing.job)}.out"), None)
    if printed is not None:
        text += f"; see {printed}"
    client_journal(folder.journal).append(
        "ended",
        state="cancelled" if cancelled else "failed",
        exit_code=1 if cancelled or word in _WORDS else EXIT_INTERNAL,
        reason="cancelled" if cancelled else f"job_{word.lower()}" if word in _WORDS else "job_gone",
        text=text,
        seen=utc_text(seen),
    )
    return replay(read_journal(folder.journal), folder.id)


def known_until(folder: RunFolder, state: RunState) -> float:
    """Return until when it is known what a run has done, in UTC epoch seconds: now, or its last word where its machines share no files."""
    now = time.time()
    try:
        travels = state.state == "running" and not abilities(plan_of(folder)["backend"]).shares_files
    except CordeeError:
        return now
    return min(now, last_sign(folder) or now) if travels else now


def release_hold(folder: RunFolder, standing: Standing) -> bool:
    """Release this user's job that its place holds by itself, once in a run, unless the profile has `release_held = false`.

    Returns whether it was released now. What was done, or refused, stands in the journal; a place that does not answer is
    asked again by whoever looks next.
    """
    if not standing.releasable or standing.job is None:
        return False
    for run in (folder, *open_children(folder)):
        state, plan = replay(read_journal(run.journal), run.id), plan_of(run)
        place = submitter(plan["backend"])
        if state.job != standing.job or state.ended or state.cancel_requested or state.hold_released:
            continue
        may = plan.get("release_held", True) and os.stat(run.root).st_uid == os.geteuid()
        if not may or not isinstance(place, ReleasesHolds):
            continue
        refused = ""
        try:
            if not place.release(standing.job):
                continue
        except CordeeError as error:
            refused = error.text
        client_journal(run.journal).append("hold_released", job=standing.job, held=standing.reason, refused=refused)
        return not refused
    return False
