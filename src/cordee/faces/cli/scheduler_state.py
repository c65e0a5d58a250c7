"""Where a run stands with its scheduler, for the commands that show it."""

from __future__ import annotations

import time
from dataclasses import replace

from cordee.backends.reconcile import settle
from cordee.core.backends import abilities
from cordee.core.errors import CordeeError
from cordee.core.units import format_duration
from cordee.job.submit import Standing, plan_of, submitter, submitter_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay

_NEW_S = 10.0


def stand(folder: RunFolder, state: RunState) -> tuple[RunState, Standing | None]:
    """Return a run's state with its standing; a run that its scheduler has let go of is ended. None: nobody was asked."""
    if state.ended:
        return state, None
    try:
        plan = plan_of(folder)
        if not abilities(plan["backend"]).queues:
            return state, None
        standing = submitter_of(folder).standing(folder)
    except CordeeError:
        return state, None
    return settle(folder, standing), timely(standing, state)


def stand_all(folders: list[RunFolder]) -> dict[str, Standing]:
    """Return the standings of runs that have not ended, by id, with one question to each scheduler; ends what is gone."""
    by_backend: dict[str, list[RunFolder]] = {}
    for folder in folders:
        try:
            by_backend.setdefault(plan_of(folder)["backend"], []).append(folder)
        except CordeeError:
            continue
    found = {}
    for backend, runs in by_backend.items():
        if not abilities(backend).queues:
            continue
        try:
            standings = submitter(backend).standings(runs)
        except CordeeError:
            continue
        for folder, standing in zip(runs, standings, strict=True):
            settle(folder, standing)
            found[folder.id] = timely(standing, replay(read_journal(folder.journal), folder.id))
    return found


def timely(standing: Standing, state: RunState) -> Standing:
    """Return the standing, without what the run's journal contradicts because the answer is older than that."""
    if standing.at is None or standing.state not in ("waiting", "running") or not state.phases:
        return standing
    if state.state == "queued" and standing.at < state.phases[-1].start:
        return replace(standing, state="unknown", reason="")
    if state.state == "running" and standing.state == "waiting":
        return replace(standing, state="running", reason="", at=None)
    return standing


def words(standing: Standing, now: float | None = None) -> str:
    """Return a standing as a person would say it: `waiting in the queue: Priority (job 12), 20 s ago`."""
    job = f" (job {standing.job})" if standing.job else ""
    reason = f": {standing.reason}" if standing.reason and standing.reason != "None" else ""
    if standing.state == "unknown" and not reason:
        return f"submitted; the scheduler is asked about it within a minute{job}"
    if standing.state == "gone" and standing.job is None:
        return "was never placed; `cordee resume` submits it"
    age_s = 0.0 if standing.at is None else (time.time() if now is None else now) - standing.at
    asked = f", {format_duration(round(age_s))} ago" if _NEW_S < age_s < 86400.0 else ""
    return {
        "waiting": f"waiting in the queue{reason}{job}",
        "running": f"has its nodes{job}",
        "gone": f"left the queue{reason}{job}",
        "unknown": f"the scheduler could not be asked{reason}{job}",
    }[standing.state] + asked
