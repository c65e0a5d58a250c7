"""`cordee report`."""

from __future__ import annotations

import json

import click

from cordee.cli.found import found, run_argument
from cordee.cli.options import json_option, runs_option
from cordee.cli.output import print_json


@click.command()
@run_argument
@runs_option
@json_option
def command(run: str, runs: str | None, as_json: bool) -> None:
    """Render the report of RUN (default: the last one) and show it; also while the run goes on.

    \b
    Example:
      cordee report last
    """
    from cordee.report import render

    folder = found(run, runs)
    page = render(folder.root)
    if as_json:
        print_json(json.loads((folder.report / "report.json").read_text()))
        return
    click.echo((folder.report / "report.txt").read_text(), nl=False)
    click.echo(f"report  {page}")
