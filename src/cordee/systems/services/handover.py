"""The next run of a service takes the place of the one that runs: in another allocation, or with another revision."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError, UsageError
from cordee.job.submit import step_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.services.blueprint import ALLOCATION, LoadedBlueprint
from cordee.systems.services.deployment import (
    ServiceStatus,
    changing,
    end_run,
    hand_over_is_open,
    record_of,
    run_status,
    start,
    status_of,
    stop,
    waited,
    web_target,
    wish_of,
)
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.instance import ServiceFailing, ServiceFolder
from cordee.systems.services.node.texts import drain_path, read_state, state_path
from cordee.systems.services.retention import prune_runs
from cordee.systems.services.start import Wish, host_document, require_machine, start_run, write_revision

DRAIN_S = 30.0
_POLL_S = 0.1
_DOOR_S = 15.0
_AGAIN_S = 120.0
# How long a run may take to end, asked by the file of its drain and then as any run.
_END_S = 60.0
# Before an allocation ends: a tenth of its time, at least and at most so much.
_LEAST_LEAD_S, _MOST_LEAD_S = 60.0, 900.0


def hand_over(
    folder: ServiceFolder,
    wait_s: float = 600.0,
    drain_s: float = DRAIN_S,
    told: Callable[[ServiceStatus], None] = lambda _: None,
) -> ServiceStatus:
    """Have the next run of a service take the place of the one that runs, without a request lost.

    A service whose volumes are shared, or that has none, is ready before the door leads to it; any other waits at their lock, requests wait at the
    door while the run before it ends, so only one program at a time has the data. What is under way is finished first.

    Args:
        wait_s: how long the next run may take until it is ready, or waits for the data.
        drain_s: how long what is under way may take; then it is cut.
        told: told what the next run waits for.

    Raises:
        UsageError: it has no door, or a port of a fixed number.
        ServiceFailing: it does not run, or the next run was not ready: then the one before runs on, or again.
    """
    _require_door(folder, folder.record())
    with changing(folder):
        record = folder.record()
        if status_of(folder).over:
            raise ServiceFailing(f"{folder.name} does not run", next=f"`cordee service deploy {folder.name}`")
        return _take_over(folder, folder.blueprint(), wish_of(record), "handed over", wait_s, drain_s, told)


def upgrade(
    folder: ServiceFolder,
    loaded: LoadedBlueprint,
    parameters: dict[str, str],
    wait_s: float,
    told: Callable[[ServiceStatus], None],
    event: str = "upgraded",
    rotate: Sequence[str] = (),
) -> ServiceStatus:
    """Start another revision in place of the one that runs; where that does not become ready, the one before goes on, or comes back.

    The new one is ready before the old one ends, as in a hand-over, where both can run at once: no port has a fixed number, and the
    data have no writer that both would be, or a door has requests wait while it changes.

    Args:
        rotate: secrets that are made anew, once the old one has ended, whatever it is.

    Raises:
        UsageError, DocumentError: the new one cannot be deployed here; the old one runs on untouched.
        ServiceFailing: the new one was not ready; the old one runs.
    """
    with changing(folder):
        record = folder.record()
        before, old = folder.blueprint(), wish_of(record)
        known = {
            name: value
            for name, value in {**old.parameters, **parameters}.items()
            if name in loaded.blueprint.parameters or name in parameters
        }
        ports = {name: number for name, number in old.ports.items() if name in loaded.blueprint.ports}
        wish = replace(old, parameters=known, ports=ports)
        host_document(loaded, folder, 0, wish)
        folder.require_rotation(rotate, loaded.blueprint)
        require_machine(loaded, folder, wish.target)
        now, alone = status_of(folder), before.blueprint.has_one_writer or loaded.blueprint.has_one_writer
        doored = record.get("door") and DoorFolder().keeper()
        if now.ready and not rotate and not old.ports and (doored or not alone):
            return _take_over(folder, loaded, wish, event, wait_s, DRAIN_S, told)
        stop(folder, holds=not now.over)
        try:
            folder.rotate(rotate, loaded.blueprint)
            start(folder, loaded, wish, event)
            return waited(folder, wait_s, told)
        except CordeeError as error:
            if now.over:
                raise
            stop(folder, holds=True)
            start(folder, before, old, "rolled back")
            if now.ready:
                waited(folder, wait_s, told)
            raise _was_not_ready(record, "is back", error) from error


def _was_not_ready(record: dict[str, Any], what: str, error: CordeeError) -> ServiceFailing:
    text = f"the new revision was not ready, so revision {record['revision']} {what}: {error.text}"
    what = f"mend it and upgrade again; where there is no room for two at once, `cordee service stop {record['name']}` first"
    return ServiceFailing(text, given=error.given, next=what)


def earlier(folder: ServiceFolder, number: int | None) -> LoadedBlueprint:
    """Return the blueprint of an earlier revision: the one before, or that of a number.

    Raises:
        UsageError: there is none.
    """
    now: int = folder.record()["revision"]
    known = [one for one in folder.revisions() if one != now]
    wanted = number if number is not None else max((one for one in known if one < now), default=None)
    if wanted not in known:
        raise UsageError(
            f"{folder.name} has no {'earlier revision' if number is None else f'other revision {number}'}",
            given=now,
            allowed=known or "none: all its runs were of this one",
        )
    return folder.blueprint(wanted)


def _take_over(
    folder: ServiceFolder,
    loaded: LoadedBlueprint,
    wish: Wish,
    event: str,
    wait_s: float,
    drain_s: float,
    told: Callable[[ServiceStatus], None],
) -> ServiceStatus:
    """Start a run beside the one that runs, and end that once the new one answers, or waits for the data alone."""
    record, old, alone = folder.record(), folder.run(), loaded.blueprint.has_one_writer
    assert old is not None
    prune_runs(folder)
    number, job = write_revision(loaded, folder, wish, _DOOR_S + drain_s + 2 * _END_S)
    new = start_run(job, loaded, folder, wish)
    wanted = record_of(folder, loaded, wish, number, new)
    _note(folder, "hand-over begun", next=wanted)
    try:
        _wait_for_next(folder, new, alone, wait_s, told)
        if alone:
            _note(folder, "requests wait", holding=True)
            _await_door(folder, "")
            _drain(old, folder.name, drain_s)
            _note(folder, event, **wanted, next=None, holding=True)
            now = waited(folder, wait_s, told)
            _note(folder, "requests go on", holding=False)
            return now
        _note(folder, event, **wanted, next=None, before=str(old.root))
        if record.get("door") and DoorFolder().keeper():
            _await_door(folder, web_target(read_state(state_path(new.root, folder.name))))
    except CordeeError as error:
        end_run(new, 30.0, "cordee service handover")
        raise _gone_back(folder, old, record, event, error) from error
    _drain(old, folder.name, drain_s)
    _note(folder, "the run before has ended", before=None)
    return status_of(folder)


def _gone_back(
    folder: ServiceFolder, old: RunFolder, record: dict[str, Any], event: str, error: CordeeError
) -> ServiceFailing:
    """Have the run before go on, or start it again where it has ended; return what is to be said."""
    ended = run_status(old, folder.name)[0] in ("stopped", "failed")
    # Requests wait until it is started again.
    _note(folder, "hand-over given up", **{**record, "next": None, "before": None, "holding": ended})
    if ended:
        start(folder, folder.blueprint(), wish_of(record), "started again")
        waited(folder, _AGAIN_S, lambda _: None)
    if event != "handed over":
        return _was_not_ready(record, "runs on", error)
    text = f"the next run was not ready, so the one before runs: {error.text}"
    return ServiceFailing(text, given=error.given, next=error.next)


def _require_door(folder: ServiceFolder, record: dict[str, Any]) -> None:
    if not record.get("door") or not DoorFolder().keeper():
        raise UsageError(
            f"{folder.name} has no door that is open: its address would change",
            given=folder.name,
            next=f"`cordee service door start`; `cordee service stop {folder.name}`; deploy it with --door",
        )
    if record["ports"]:
        raise UsageError(
            f"{folder.name} has ports of fixed numbers, which two runs cannot have at once",
            given=record["ports"],
            next="deploy it without --port: the door's address stays",
        )


def _wait_for_next(
    folder: ServiceFolder, new: RunFolder, alone: bool, wait_s: float, told: Callable[[ServiceStatus], None]
) -> None:
    """Wait until the next run is ready, or waits for the data of the one that runs."""
    until, said = monotonic() + wait_s, ("", "")
    while True:
        state, why = run_status(new, folder.name)
        if state == "ready" or (alone and read_state(state_path(new.root, folder.name)).get("waits")):
            return
        if state in ("failed", "stopped") or monotonic() > until:
            raise ServiceFailing(f"{state} after {wait_s - (until - monotonic()):.0f} s: {why}", given=str(new.root))
        if (state, why) != said:
            said = state, why
            told(ServiceStatus(f"{folder.name} (next)", "", "", 0, "", "", state, [], why))
        time.sleep(_POLL_S)


def _await_door(folder: ServiceFolder, target: str) -> None:
    until = monotonic() + _DOOR_S
    while DoorFolder().keeper().get("routes", {}).get(folder.name, {}).get("target") != target:
        if monotonic() > until:
            raise ServiceFailing("the door does not follow", next="`cordee service door status`")
        time.sleep(_POLL_S)


def _drain(run: RunFolder, name: str, drain_s: float) -> None:
    """Have a run end once nobody is connected to its service."""
    drain_path(run.root, name).write_text(f"{drain_s:.3f}\n")
    until = monotonic() + drain_s + _END_S
    while monotonic() < until:
        if replay(read_journal(run.journal), run.id).ended or run_status(run, name)[0] in ("stopped", "failed"):
            return
        time.sleep(_POLL_S)
    end_run(run, _END_S, "cordee service handover")


def _note(folder: ServiceFolder, event: str, **changed: Any) -> None:
    folder.write({**folder.record(), **changed}, event)


def due_handover(folder: ServiceFolder, record: dict[str, Any]) -> bool:
    """Return whether the allocation of a service ends so soon that the next one is to be asked for."""
    run = folder.run()
    if record["target"] != ALLOCATION or run is None or hand_over_is_open(record):
        return False
    segment = step_of(run).get("segment", {})
    limit_s: float | None = segment.get("limit_s")
    if limit_s is None:
        return False
    state = replay(read_journal(run.journal), run.id)
    began = state.segment_states[-1].started_at if state.segment_states else None
    if began is None or state.ended:
        return False
    lead_s = min(max(limit_s / 10, _LEAST_LEAD_S), _MOST_LEAD_S, limit_s / 2) + float(segment["grace_s"])
    return unix_s() > began + limit_s - lead_s
