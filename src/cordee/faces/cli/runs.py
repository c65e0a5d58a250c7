"""`cordee runs`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from heapq import merge
from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.core.units import format_duration, utc_text
from cordee.faces.cli.scheduler_state import OPEN, stand_all, state_word, words
from cordee.faces.web.runs.summaries import summarise
from cordee.job.terminal.options import json_option, recordings_folders, runs_folders, runs_option
from cordee.runs.folder import RunFolder
from cordee.runs.index import RunSummary, list_runs
from cordee.runs.log_tails import plain
from cordee.telemetry.node.recording import is_recorded


@click.command()
@click.option(
    "--state", type=click.Choice(["queued", "running", "finished", "failed", "cancelled"]), help="Only these."
)
@runs_option
@json_option
def command(state: str | None, runs: str | None, as_json: bool) -> None:
    """List the runs and recordings, the newest last.

    \b
    Example:
      cordee runs --state failed
    """
    folders = runs_folders(runs)
    waiting, ended = [], defaultdict(list)
    for one in list_runs(*folders):
        if one.state in OPEN:
            waiting.append(RunFolder(one.folder))
        elif one.backend:
            ended[one.backend].append(RunFolder(one.folder))
    standings = stand_all(waiting, ended)
    listed = merge(list_runs(*folders), _recordings(recordings_folders(runs)), key=lambda one: one.submitted_at or 0.0)
    summaries = [summary for summary in listed if state in (None, summary.state)]
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
        queued = standing is not None and standing.queued  # a run that has ended, too, where it did not come home
        word = state_word("queued" if queued else summary.state, standing)
        where = f"  {words(standing)}" if standing is not None and (queued or summary.state in OPEN) else ""
        where = f"  {plain(summary.reason)}" if summary.state == "unreadable" else where
        where = f"  {_recorded(summary)}" if summary.kind == "recording" else where
        click.echo(f"{summary.id:{width}}  {word:9}  {submitted:20}  {summary.nodes:5}  {step:>6}  {ago}{where}")


def _recordings(folders: Iterable[Path]) -> list[RunSummary]:
    """Return a summary of every recording in these folders, the oldest first."""
    found = []
    for place in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        with suppress(OSError):  # folders of others may be closed
            if is_recorded(RunFolder(place)) and not place.is_symlink():
                summary = summarise(RunFolder(place))
                found.append(RunSummary(**{one.name: getattr(summary, one.name) for one in fields(RunSummary)}))
    return sorted(found, key=lambda one: one.submitted_at or 0.0)


def _recorded(summary: RunSummary) -> str:
    """Return what is to be said of a recording: how the command ended, and how long it took."""
    words = [] if summary.exit_code is None else [f"exit code {summary.exit_code}"]
    if summary.started_at is not None and (summary.ended_at is not None or summary.state == "running"):
        took = format_duration((summary.ended_at or time.time()) - summary.started_at)
        words.append(took if summary.ended_at is not None else f"{took} so far")
    words += [plain(summary.reason)] if summary.reason else []
    return f"recording: {', '.join(words)}" if words else "recording"
