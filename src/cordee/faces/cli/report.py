"""`cordee report`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.machine.foreign_files import read_json, read_regular


@click.command()
@run_argument
@runs_option
@json_option
def command(run: str, runs: str | None, as_json: bool) -> None:
    """Render the report of RUN (default: the last one) and show it; also while it runs.

    \b
    Example:
      cordee report last
    """
    from cordee.faces.report import render
    from cordee.faces.report.completion import complete, reported

    folder = found(run, runs)
    state = state_of(folder)
    page = folder.report / "index.html"
    if not (complete(folder, state) and reported(folder, state)):
        page = render(folder.root)
    if as_json:
        print_json(read_json(folder.report / "report.json", folder.root))
        return
    click.echo(read_regular(folder.report / "report.txt", folder.root).decode(), nl=False)
    click.echo(f"report  {page}")
