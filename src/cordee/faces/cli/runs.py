"""`cordee runs`."""

from __future__ import annotations

import time

import click

from cordee.core.terminal.output import print_json
from cordee.core.units import format_duration, utc_text
from cordee.faces.cli.scheduler_state import OPEN, stand_all, state_word, words
from cordee.job.terminal.options import json_option, runs_folders, runs_option
from cordee.runs.folder import RunFolder
from cordee.runs.index import list_runs
from cordee.runs.log_tails import plain


@click.command()
@click.option(
    "--state", type=click.Choice(["queued", "running", "finished", "failed", "cancelled"]), help="Only these."
)
@runs_option
@json_option
def command(state: str | None, runs: str | None, as_json: bool) -> None:
    """List the runs, the newest last.

    \b
    Example:
      cordee runs --state failed
    """
    folders = runs_folders(runs)
    waiting = [RunFolder(summary.folder) for summary in list_runs(*folders) if summary.state in OPEN]
    standings = stand_all(waiting)
    summaries = [summary for summary in list_runs(*folders) if state in (None, summary.state)]
    if as_json:
        rows = [
            {**vars(summary), "standing": vars(standings[summary.id]) if summary.id in standings else None}
            for summary in summaries
        ]
        print_json({"schema": "cordee.runs/1", "runs": rows})
        return
    if not summaries:
        click.echo(f"no runs in {', '.join(map(str, folders))}; `cordee run` starts one", err=True)
        return
    width = max(len(summary.id) for summary in summaries)
    click.echo(f"{'run':{width}}  {'state':9}  {'submitted':20}  nodes  step")
    for summary in summaries:
        submitted = utc_text(summary.submitted_at)[:19].replace("T", " ") if summary.submitted_at else "-"
        ago = f"({format_duration(time.time() - summary.submitted_at)} ago)" if summary.submitted_at else ""
        step = "-" if summary.step is None else str(summary.step)
        standing = standings.get(summary.id)
        where = f"  {words(standing)}" if standing is not None and summary.state in OPEN else ""
        where = f"  {plain(summary.reason)}" if summary.state == "unreadable" else where
        click.echo(
            f"{summary.id:{width}}  {state_word(summary.state, standing):9}  {submitted:20}  {summary.nodes:5}  {step:>6}  {ago}{where}"
        )
