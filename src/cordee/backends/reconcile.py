"""What a place and a run's folder say of it together: until when it is known what it did, and whether its hold may go."""

from __future__ import annotations

import os
import time

from cordee.core.backends import abilities
from cordee.core.errors import CordeeError
from cordee.job.submit import ReleasesHolds, Standing, plan_of, submitter
from cordee.job.submit.parent import open_children
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.signs import last_sign
from cordee.runs.state import RunState, replay


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
