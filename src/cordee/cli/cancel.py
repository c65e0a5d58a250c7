"""`cordee cancel`."""

from __future__ import annotations

import time

import click

from cordee.cli.follow import request_cancel
from cordee.cli.found import found, run_argument, state_of
from cordee.cli.options import json_option, runs_option
from cordee.cli.output import print_json
from cordee.errors import CordeeError
from cordee.report.run_document import run_document
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal
from cordee.runs.state import RunState
from cordee.submit import submitter_of

_POLL_S = 0.1


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
    if not state.ended:
        state = cancel(folder, now=now, wait_s=wait)
    if as_json:
        print_json(run_document(folder, state))
    else:
        click.echo(f"{folder.id}: {state.state}")


def cancel(folder: RunFolder, *, now: bool, wait_s: float) -> RunState:
    """End a run and return its last state; one that nobody leads any more is ended here.

    Raises:
        CordeeError: it has not ended within `wait_s`.
    """
    place = submitter_of(folder)
    request_cancel(folder, by="cordee cancel", now=now)
    standing = place.standing(folder, age_s=0.0)
    if standing.state == "waiting":
        place.cancel(folder)
        return _end(folder, "cancelled while it waited in the queue")
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        state = state_of(folder)
        if state.ended:
            return state
        if place.standing(folder).state == "gone":
            return _end(folder, "cancelled; nothing ran it any more")
        time.sleep(_POLL_S)
    if now:
        place.cancel(folder)
        return _end(folder, "all its processes were killed")
    raise CordeeError(
        f"the run has not ended within {wait_s:.0f} s",
        given=folder.id,
        next="wait, or end it without saving: `cordee cancel --now`",
    )


def _end(folder: RunFolder, text: str) -> RunState:
    if not state_of(folder).ended:
        client_journal(folder.journal).append("ended", state="cancelled", exit_code=1, reason="cancelled", text=text)
    return state_of(folder)
