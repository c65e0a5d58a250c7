"""Ending a run in its journal when the place that held it has let go of it and nobody in it could write the end."""

from __future__ import annotations

import os
import time
from glob import escape
from typing import Any

from cordee.core.backends import abilities
from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.core.units import natural, utc_text
from cordee.job.submit._base import Standing
from cordee.job.submit.factory import plan_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.signs import last_sign
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
    wrote something after its place was asked, or shortly before, lives, whatever was said of its job: a controller that lost
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
        cut_off=standing.cut_off,
        **left_at_home(folder, state),
    )
    return replay(read_journal(folder.journal), folder.id)


def left_at_home(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """Return, as `checkpoint`, the newest that is here of a run whose machines share no files; nothing where they do."""
    try:
        if state.checkpoint is None or abilities(plan_of(folder)["backend"]).shares_files:
            return {}
    except CordeeError:
        return {}
    return {"checkpoint": newest_at_home(folder)}


def newest_at_home(folder: RunFolder) -> str | None:
    """Return the newest checkpoint by the journal where it has come home, else the last that has."""
    newest = replay(read_journal(folder.journal), folder.id).checkpoint
    if newest and (folder.checkpoints / newest).exists():
        return newest
    try:
        there = sorted((one for one in os.listdir(folder.checkpoints) if not one.startswith(".")), key=natural)
    except OSError:
        return None
    return there[-1] if there else None
