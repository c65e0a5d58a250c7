"""Where a run stands with its scheduler, for the commands that show it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from cordee.backends.reconcile import release_hold
from cordee.core.backends import abilities
from cordee.core.errors import CordeeError
from cordee.core.units import format_duration
from cordee.job.submit import Standing, Submitter, plan_of, submitter, submitter_of
from cordee.job.submit.parent import open_children
from cordee.job.submit.settle import settle
from cordee.runs.children import GRAPH
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.signs import last_sign
from cordee.runs.state import RunState, replay

OPEN = ("queued", "running")
_NEW_S = 10.0


def stand(folder: RunFolder, state: RunState) -> tuple[RunState, Standing | None]:
    """Return a run's state with its standing; a run that its scheduler has let go of is ended. None: nobody was asked.

    Where nodes share no files, the way home of a run that has ended may have failed: then its job is still in the queue.
    """
    try:
        if state.ended:
            return state, submitter_of(folder).not_home([folder]).get(folder.id)
        if not abilities(plan_of(folder)["backend"]).queues:
            return state, None
        standing = ask(submitter_of(folder), folder, state)
    except CordeeError:
        return state, None
    return settle(folder, standing), standing


def ask(place: Submitter, folder: RunFolder, state: RunState) -> Standing:
    """Return where a run stands with its place; a job that this holds by itself is released where the profile says so."""
    standing = timely(folder, place.standing(folder), state)
    return _released(standing) if release_hold(folder, standing) else standing


def stand_all(folders: list[RunFolder], ended: dict[str, list[RunFolder]]) -> dict[str, Standing]:
    """Return standings by id, with one question to each scheduler; ends what is gone.

    Args:
        folders: runs that have not ended.
        ended: those that have, by their back end: those that did not come home have a standing.
    """
    alike: dict[tuple[str, bool], list[RunFolder]] = {}
    for folder in folders:
        try:
            alike.setdefault((plan_of(folder)["backend"], (folder.root / GRAPH).is_file()), []).append(folder)
        except CordeeError:
            continue
    found = {}
    for (backend, _), runs in alike.items():
        if not abilities(backend).queues:
            continue
        try:
            standings = submitter_of(runs[0]).standings(runs)
        except CordeeError:
            continue
        for folder, standing in zip(runs, standings, strict=True):
            settle(folder, standing)
            found[folder.id] = timely(folder, standing, replay(read_journal(folder.journal), folder.id))
    for backend, runs in ended.items():
        with suppress(CordeeError):
            found.update(submitter(backend).not_home(runs))
    return found


def timely(folder: RunFolder, standing: Standing, state: RunState) -> Standing:
    """Return the standing, without what the run has contradicted since the scheduler said it: by its journal, or a sign of life."""
    at = standing.at
    if at is None or standing.state in ("gone", "unknown") or not state.phases:
        return standing
    if state.state == "queued" and at < state.phases[-1].start:
        return Standing("unknown", standing.job, at=at)
    released = state.hold_released or {}
    done = released.get("job") == standing.job and not released.get("refused") and at <= released.get("at", 0.0)
    if standing.state == "held" and done:
        standing = _released(standing)
    if standing.state == "running" or (state.state, standing.state) == ("queued", "waiting"):
        return standing
    idle_since = max(state.phases[-1].start, *(last_sign(run) or 0.0 for run in (folder, *open_children(folder))))
    if state.state == "running" and idle_since >= at:
        return Standing("running", standing.job)
    return replace(standing, idle_since=idle_since)


def _released(standing: Standing) -> Standing:
    return Standing("waiting", standing.job, "released from hold", at=standing.at)


def state_word(state: str, standing: Standing | None) -> str:
    """Return the journal's word for where a run is, or the scheduler's where that has it wait, held or suspended."""
    if standing is None or state not in OPEN:
        return state
    return {"waiting": "queued", "held": "held", "suspended": "suspended"}.get(standing.state, state)


def words(standing: Standing, now: float | None = None) -> str:
    """Return a standing as a person would say it: `waiting in the queue: Priority (job 12), 20 s ago`."""
    job = f" (job {standing.job})" if standing.job else ""
    reason = f": {standing.reason}" if standing.reason and standing.reason != "None" else ""
    if standing.state == "unknown" and not reason:
        return f"submitted; the scheduler is asked about it within a minute{job}"
    if standing.state == "gone" and standing.job is None:
        return "was never placed; `cordee resume` submits it"
    now = time.time() if now is None else now
    age_s = 0.0 if standing.at is None else now - standing.at
    asked = f", {format_duration(round(age_s))} ago" if _NEW_S < age_s < 86400.0 else ""
    idle_s = 0.0 if standing.idle_since is None else max(1.0, now - standing.idle_since)
    idle = f"; has not run for {format_duration(round(idle_s))}" if idle_s else ""
    next = f"; next: {standing.next}" if standing.next else ""
    return {
        "waiting": f"waiting in the queue{reason}{job}",
        "held": f"held in the queue{reason}{job}",
        "running": f"has its nodes{reason}{job}",
        "suspended": f"suspended: it has its nodes and its processes are stopped{job}",
        "gone": f"left the queue{reason}{job}",
        "unknown": f"the scheduler could not be asked{reason}{job}",
    }[standing.state] + f"{asked}{idle}{next}"


def last_word(folder: RunFolder) -> str:
    """Return how old what is known of a run is, where its machines share no files with this one: `3 s ago`; empty: they do."""
    try:
        shares_files = abilities(plan_of(folder)["backend"]).shares_files
    except CordeeError:
        return ""
    sign = None if shares_files else last_sign(folder)
    return "" if sign is None else f"{format_duration(round(max(1.0, time.time() - sign)))} ago, as it came home"


def hold_words(state: RunState) -> list[str]:
    """Return what became of a job that its scheduler held by itself: one sentence, none where no command released it."""
    if not state.hold_released:
        return []
    job, held, refused = (state.hold_released[key] for key in ("job", "held", "refused"))
    done = f"could not be released: {refused}" if refused else "was released"
    return [f"job {job} ({held}) {done}: `release_held` in the profile"]
