"""What commands do with a farm: submit it, follow it, give it more tasks, have it go on."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

import click

from cordee.backends.reconcile import settle
from cordee.core.errors import CordeeError
from cordee.job.submit import plan_of, submitter_of
from cordee.job.terminal.requests import leave_request
from cordee.job.terminal.run_args import state_of
from cordee.machine.slots import SlotRequest
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lookout import Lookout
from cordee.runs.state import RunState
from cordee.systems.trials.examine import trials_of
from cordee.systems.trials.formats import TaskDefaults, read_file
from cordee.systems.trials.node.dispatcher import REQUEST
from cordee.systems.trials.node.task_list import FOLDER, JOURNAL, FarmTask, lines_of
from cordee.systems.trials.shown import Farm
from cordee.systems.trials.sweeps import Sweep

_FIRST_STANDING_S, _GONE_S = 1.0, 5.0
_LEAVE_S = 30.0


def submit_run(folder: RunFolder) -> None:
    """Hand a run's frozen plan to its back end."""
    submitter_of(folder).submit(folder, plan_of(folder))


def follow(folder: RunFolder, *, quiet: bool = False) -> RunState:
    """Return the state of a farm's run once it has ended, or as it is when the person stops waiting; says what there is to say.

    Raises:
        CordeeError: nothing runs it any more.
    """
    place, journal, lookout = submitter_of(folder), JournalFollower(folder), Lookout(folder)
    ask_at, gone_since, said = time.monotonic() + _FIRST_STANDING_S, None, 0
    state = journal.read()
    try:
        while not state.ended:
            time.sleep(lookout.pause_s)
            if lookout.look().journal:
                state = journal.read()
            if not quiet:
                said = _say_new(state, said)
            now = time.monotonic()
            if now < ask_at or (state.state == "running" and lookout.heard_lately):
                continue
            ask_at = now + lookout.seldom_s(place.poll_s)
            standing = place.standing(folder)
            gone_since = (gone_since or now) if standing.state == "gone" else None
            if gone_since is not None and now - gone_since > _GONE_S and standing.job is None:
                what = f"`cordee resume {folder.id}` goes on with the tasks that have not ended"
                raise CordeeError("nothing runs this farm any more", given=folder.id, next=what)
            if gone_since is not None:
                settle(folder, standing)
            state = journal.read()
    except KeyboardInterrupt:
        click.echo(
            f"\ncordee: the farm continues; `cordee farm show {folder.id}` says how far it is, `cordee cancel {folder.id}` ends it",
            err=True,
        )
        return journal.read()
    if not quiet:
        _say_new(state, said)
    return state


def _say_new(state: RunState, said: int) -> int:
    """Print findings that came since the last look; returns how many there are now."""
    grave = [one for one in state.findings if one.severity != "info"]
    for one in grave[said:]:
        click.echo(f"cordee: {one.severity}: {one.text}", err=True)
    return len(grave)


def leave_tasks(folder: RunFolder, event: str, **what: Any) -> None:
    """Write what somebody wants of a farm's tasks into their journal, and tell its supervisor if there is one.

    Raises:
        RunFolderError: the disk does not take it.
    """
    journal = client_journal(folder.root / FOLDER / JOURNAL)
    journal.append(event, **what)
    if journal.last_error is not None:
        raise journal.last_error
    if not state_of(folder).ended:
        leave_request(folder, {"request": REQUEST})


def add_tasks(folder: RunFolder, file: Path) -> int:
    """Give a farm the tasks of another file; returns how many.

    Raises:
        UsageError: the run is no farm.
        DocumentError: as `read_file`.
    """
    farm = Farm(folder.root)
    part = plan_of(folder)["steps"][0]["systems"]["trials"]
    asks = SlotRequest(part["cores"], part["gpus"], part["memory_bytes"] or 0)
    first = max((task.id for task in farm.tasks), default=-1) + 1
    tasks = [
        task._replace(id=first + index)
        for index, task in enumerate(read_file(file, part["format"], TaskDefaults(asks, part["time_s"])))
    ]
    _add(folder, tasks)
    return len(tasks)


def add_trials(folder: RunFolder, sweep: Sweep, more: int) -> None:
    """Give a sweep more trials.

    Raises:
        DocumentError: its sampler cannot make so many.
    """
    table = sweep.part["sweep"]
    there = len(sweep.trials)
    _add(folder, trials_of(table, there + more - table["trials"])[there:])


def _add(folder: RunFolder, tasks: list[FarmTask]) -> None:
    name = f"tasks-{tasks[0].id}-{secrets.token_hex(4)}.jsonl"
    write_atomically(folder.root / FOLDER / name, lines_of(tasks))
    leave_tasks(folder, "tasks_added", file=name)


def begin_again(folder: RunFolder) -> None:
    """Have a farm that has ended go on."""
    state, place = state_of(folder), submitter_of(folder)
    if not state.ended:
        return
    deadline = time.monotonic() + _LEAVE_S
    while place.active(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    client_journal(folder.journal).append("resume_requested")
    submit_run(folder)
