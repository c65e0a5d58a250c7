"""`cordee cancel`."""

from __future__ import annotations

import time

import click

from cordee.backends.reconcile import known_until
from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.terminal.output import print_json
from cordee.core.units import utc_text
from cordee.faces.cli.follow import request_cancel
from cordee.faces.cli.scheduler_state import words
from cordee.faces.report.run_document import run_document
from cordee.job.submit import Submitter, submitter_of
from cordee.job.submit.parent import ParentSubmitter, open_children
from cordee.job.submit.settle import left_at_home
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.disk import may_pass
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal
from cordee.runs.state import RunState

_POLL_S, _TELL_S, _AGE_S = 0.1, 15.0, 30.0


@click.command()
@run_argument
@click.option("--now", is_flag=True, help="Do not give ranks the time to save.")
@click.option("--wait", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for the end.")
@runs_option
@json_option
def command(run: str, now: bool, wait: float, runs: str | None, as_json: bool) -> None:
    """End RUN (default: the last one). Ranks that call cordee.stopping are asked to save and stop first.

    \b
    Example:
      cordee cancel last
      cordee cancel char-gpt-20261121T012244Z-kqzv --now
    """
    folder = found(run, runs)
    state = state_of(folder)
    if state.ended:
        _remove_what_is_left(folder, state, now=now)
    else:
        state = cancel(folder, now=now, wait_s=wait)
    if as_json:
        print_json(run_document(folder, state))
    else:
        click.echo(f"{folder.id}: {state.state}")


def cancel(folder: RunFolder, *, now: bool, wait_s: float) -> RunState:
    """End a run and return its last state; one that nobody leads any more is ended here.

    Raises:
        CordeeError: it has not ended within `wait_s`, or it has and that cannot be written.
    """
    place = submitter_of(folder)
    try:
        request_cancel(folder, by="cordee cancel", now=now)
    except RunFolderError as error:
        if not may_pass(error):
            raise
        place.cancel(folder)
        return _end(folder, "all its processes were killed: the disk did not take the wish to end it")
    for child in place.cancel_waiting(folder) if isinstance(place, ParentSubmitter) else ():
        _end(child, "cancelled while it waited in the queue")
    for child in open_children(folder):
        cancel(child, now=now, wait_s=wait_s)
    deadline, age_s, told, tell_at = time.monotonic() + wait_s, 0.0, "", time.monotonic() + _TELL_S
    while True:
        standing, state = place.standing(folder, age_s=age_s), state_of(folder)
        if state.ended:
            return state
        if standing.queued:
            return _take_out(folder, place, now=now)
        if standing.state == "gone":
            return _end(folder, "cancelled; nothing ran it any more")
        if time.monotonic() > deadline:
            break
        if (standing.reason and standing.reason != told) or time.monotonic() > tell_at:
            told, tell_at = standing.reason, time.monotonic() + _TELL_S
            say(
                f"cordee: it was asked to end, and {words(standing)}; waiting up to {deadline - time.monotonic():.0f} s"
            )
        age_s = _AGE_S
        time.sleep(_POLL_S)
    if now:
        place.cancel(folder)
        return _end(folder, "all its processes were killed")
    raise CordeeError(
        f"the run has not ended within {wait_s:.0f} s: it {words(standing)}",
        given=folder.id,
        next="wait: it knows that it is to end; or end it without saving: `cordee cancel --now`",
    )


def _take_out(folder: RunFolder, place: Submitter, *, now: bool) -> RunState:
    """Take a run out of the queue, unless that would lose what only the place has of it."""
    lost = "" if now else place.would_lose(folder)
    if lost:
        raise CordeeError(
            f"taking the run out of the queue now would lose {lost}",
            given=folder.id,
            next="wait: it ends itself, and comes home, when it starts again; `cordee cancel --now` loses that",
        )
    place.cancel(folder)
    return _end(folder, "cancelled while it waited in the queue")


def _remove_what_is_left(folder: RunFolder, state: RunState, *, now: bool) -> None:
    """Remove the job of a run that has ended and did not come home."""
    place = submitter_of(folder)
    left = place.not_home([folder]).get(folder.id)
    if left is None:
        return
    if not now:
        raise CordeeError(
            f"the run has ended ({state.state}), and what it made has not come home: it is {words(left)}",
            given=folder.id,
            next="`cordee cancel --now` removes the job, and loses what has not come home",
        )
    place.cancel(folder)


def _end(folder: RunFolder, text: str) -> RunState:
    state = state_of(folder)
    if not state.ended:
        journal = client_journal(folder.journal)
        seen = utc_text(known_until(folder, state))
        here = left_at_home(folder, state)
        journal.append("ended", state="cancelled", exit_code=1, reason="cancelled", text=text, seen=seen, **here)
        if journal.last_error is not None:
            raise CordeeError(
                f"the run is over ({text}), and its journal cannot say so: {journal.last_error.strerror}",
                given=str(folder.journal),
                next="make room, then `cordee cancel` it again",
            )
    return state_of(folder)
