"""What commands do with a farm: submit it, follow it, give it more tasks, have it go on."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cordee.core.errors import CordeeError, UsageError
from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.settle import settle
from cordee.job.terminal.requests import leave_request
from cordee.job.terminal.run_args import state_of
from cordee.job.trials import parameters_of
from cordee.machine.foreign_files import digest_regular
from cordee.machine.slots import SlotRequest
from cordee.runs.children import child_folder, parent_of, read_graph
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lookout import Lookout
from cordee.runs.state import RunState
from cordee.systems.trials.examine import trials_of
from cordee.systems.trials.formats import TaskDefaults, array_in, read_file
from cordee.systems.trials.node.dispatcher import REQUEST
from cordee.systems.trials.node.task_list import FOLDER, JOURNAL, FarmTask, lines_of
from cordee.systems.trials.node.task_states import WANTED
from cordee.systems.trials.shown import Farm, has_tasks
from cordee.systems.trials.space import space_of
from cordee.systems.trials.sweeps import Sweep, is_sweep

# What the tasks of each kind of run are called.
TASKS = {"farm": "tasks", "sweep": "trials"}
_FIRST_STANDING_S, _GONE_S = 1.0, 5.0
_LEAVE_S = 30.0


def submit_run(folder: RunFolder) -> None:
    """Hand a run's frozen plan to its back end."""
    submitter_of(folder).submit(folder, plan_of(folder))


def name_of(folder: RunFolder) -> str:
    """Return what a run that has tasks is: `farm` or `sweep`, as the command for it is called."""
    return "sweep" if is_sweep(folder) else "farm"


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
                kind = name_of(folder)
                what = f"`cordee resume {folder.id}` goes on with the {TASKS[kind]} that have not ended"
                raise CordeeError(f"nothing runs this {kind} any more", given=folder.id, next=what)
            if gone_since is not None:
                settle(folder, standing)
            state = journal.read()
    except KeyboardInterrupt:
        kind = name_of(folder)
        told = f"`cordee {kind} show {folder.id}` says how far it is, `cordee cancel {folder.id}` ends it"
        click.echo(f"\ncordee: the {kind} continues; {told}", err=True)
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


def _refuse_parts(folder: RunFolder) -> None:
    """Raise where the tasks of a run were dealt out over several jobs."""
    parts = Farm(folder.root).parts
    if parts > 1 or plan_of(folder).get("parent"):
        what = f"`cordee resume {folder.id}` goes on with what has not ended; make another run for more"
        raise UsageError("tasks that were dealt out over jobs stay as they are", given=folder.id, next=what)


def leave_tasks(folder: RunFolder, event: str, **what: Any) -> None:
    """Write what somebody wants of a farm's tasks into their journal, and tell its supervisor if there is one.

    Raises:
        RunFolderError: the disk does not take it.
        UsageError: its tasks lie in several jobs.
    """
    _refuse_parts(folder)
    _write_wish(folder, event, **what)
    if not state_of(folder).ended:
        leave_request(folder, {"request": REQUEST})


def _write_wish(folder: RunFolder, event: str, **what: Any) -> None:
    journal = client_journal(folder.root / FOLDER / JOURNAL)
    journal.append(event, **what)
    if journal.last_error is not None:
        raise journal.last_error


def retry_tasks(folder: RunFolder, failed: list[int]) -> None:
    """Have the failed tasks of a farm run again once it goes on; those of one that was dealt out over jobs where they lie.

    Raises:
        RunFolderError: the disk does not take it.
        UsageError: its tasks lie in jobs that have not all ended, or it is one of these.
    """
    graph = read_graph(folder)
    parts = [
        child_folder(folder, child) for child in (graph.children if graph else ()) if child.about.get("kind") == "part"
    ]
    above = parent_of(folder)
    if above is not None and has_tasks(above.root) and Farm(above.root).parts > 1:
        what = f"`cordee farm retry {above.id}` runs the failed tasks of all its jobs again"
        raise UsageError("this run is one of the jobs of a farm", given=folder.id, next=what)
    if not parts:
        leave_tasks(folder, "tasks_retried", tasks=failed)
        return
    if not state_of(folder).ended:
        what = f"`cordee farm retry {folder.id}` once they have: `cordee show {folder.id}` lists them"
        raise UsageError("the jobs of this farm have not all ended", given=folder.id, next=what)
    for part in parts:
        own = [row["id"] for row in Farm(part.root).rows("failed")]
        if own:
            _write_wish(part, "tasks_retried", tasks=own)


def add_tasks(folder: RunFolder, file: Path, only_new: bool = False) -> tuple[int, int]:
    """Give a farm the tasks of a file; returns how many, and how many more of the file it has already.

    Args:
        only_new: leave these out, wherever they stand.

    Raises:
        UsageError: the run is no farm, or nothing is new.
        DocumentError: as `read_file`.
    """
    farm = Farm(folder.root)
    part = plan_of(folder)["steps"][0]["systems"]["trials"]
    defaults = TaskDefaults(SlotRequest(part["cores"], part["gpus"], part["memory_bytes"] or 0), part["time_s"])
    first = max((task.id for task in farm.tasks), default=-1) + 1
    there = Counter(task.values.get("line") for task in farm.tasks)
    found = read_file(file, part["format"], defaults)
    if array_in(file, part["format"]) is not None:
        what = f"`cordee farm {file}` makes a farm of it"
        raise UsageError("the tasks of an array script cannot be added", given=str(file), next=what)
    new = []
    for task in found:
        there[task.values["line"]] -= 1
        new += [task] if there[task.values["line"]] < 0 else []
    tasks = new if only_new else found
    if not tasks:
        what = "`cordee farm add` without --new adds it as it is"
        raise UsageError("the farm has all lines of this file", given=str(file), next=what)
    _add(folder, [task._replace(id=first + index) for index, task in enumerate(tasks)], digest_regular(file))
    return len(tasks), len(found) - len(new)


def add_trials(folder: RunFolder, sweep: Sweep, more: int | None, changed: Mapping[str, Any] = {}) -> int:
    """Give a sweep more trials; returns how many, where that is known.

    Args:
        more: how many; None: all that a grid with `changed` has and that are not there.
        changed: other ranges of parameters, as the document gives them.

    Raises:
        DocumentError: its sampler cannot make so many.
        UsageError: it has no such parameter, or `more` is missing.
    """
    table = {**sweep.table, **changed}
    unknown = [name for name in changed if name not in parameters_of(sweep.table)]
    if unknown:
        allowed = ", ".join(parameters_of(sweep.table))
        raise UsageError("the sweep has no such parameter", given=unknown[0], allowed=allowed, next="name one of these")
    space = space_of(parameters_of(table))
    if more is None and (not changed or table.get("trials") is not None):
        raise UsageError("how many?", given=None, allowed="--trials N", next="say how many, or change a grid by --set")
    if sweep.part.get("sampling"):
        what = {"space": [one.document() for one in space], "sweep": table} if changed else None
        leave_tasks(folder, WANTED, more=more, table=what)
        return more or 0
    there = [trial["parameters"] for trial in sweep.trials]
    if more is None:
        new = [trial for trial in trials_of(table) if trial.values not in there]
        found = [task._replace(id=len(there) + index) for index, task in enumerate(new)]
        if not found:
            raise UsageError("all these points were tried", given=dict(changed), next="change a range")
    else:
        found = trials_of(table, len(there) + more - table["trials"])[len(there) :]
    _add(folder, found)
    if changed:
        leave_tasks(folder, WANTED, more=0, table={"sweep": table})
    return len(found)


def _add(folder: RunFolder, tasks: list[FarmTask], digest: str = "") -> None:
    _refuse_parts(folder)
    name = f"tasks-{tasks[0].id}-{secrets.token_hex(4)}.jsonl"
    write_atomically(folder.root / FOLDER / name, lines_of(tasks))
    leave_tasks(folder, "tasks_added", file=name, digest=digest)


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
