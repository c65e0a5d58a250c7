"""`cordee resume`."""

from __future__ import annotations

import click

from cordee.cli.found import found, run_argument, state_of
from cordee.cli.options import json_option, runs_option
from cordee.errors import UsageError
from cordee.runs.journal import client_journal


@click.command()
@run_argument
@click.option("--detach", is_flag=True, help="Return at once; the run goes on by itself.")
@runs_option
@json_option
def command(run: str, detach: bool, runs: str | None, as_json: bool) -> None:
    """Go on with RUN (default: the last one) in the same folder, from its newest complete checkpoint.

    \b
    Example:
      cordee resume last
    """
    from cordee.cli.follow import Follower
    from cordee.cli.run import conclude, submit
    from cordee.submit import submitter_of

    folder = found(run, runs)
    state = state_of(folder)
    if state.state == "finished":
        raise UsageError("this run has finished", given=folder.id, next="`cordee run` starts a new one")
    if not state.ended and submitter_of(folder).standing(folder, age_s=0.0).state != "gone":
        raise UsageError("this run is still going on", given=folder.id, next=f"`cordee watch {folder.id}` shows it")
    follower = Follower(folder, quiet=as_json, from_now=True)
    client_journal(folder.journal).append("resume_requested")
    submit(folder)
    conclude(follower, detach=detach, as_json=as_json)
