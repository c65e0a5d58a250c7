"""`cordee report`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.machine.foreign_files import read_json, read_regular
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import is_recorded


@click.command()
@run_argument
@runs_option
@json_option
@click.option(
    "--close", is_flag=True, hidden=True, help="Seal and render what its supervisor ends with; shows nothing."
)
def command(run: str, runs: str | None, as_json: bool, close: bool) -> None:
    """Render the report of RUN (default: the last one), or of a recording, and show it; also while it runs.

    \b
    Example:
      cordee report last
    """
    from cordee.faces.report import render
    from cordee.faces.report.completion import complete, may_store, reported

    folder = found(run, runs, recordings=True)
    state = state_of(folder)
    if close:
        complete(folder, state, owner_is_gone=True)
        return
    if not may_store(folder):
        _show(folder, as_json)
        return
    page = folder.report / "index.html"
    if is_recorded(folder) or not (complete(folder, state) and reported(folder, state)):
        page = render(folder.root)
    if as_json:
        print_json(read_json(folder.report / "report.json", folder.root))
        return
    click.echo(read_regular(folder.report / "report.txt", folder.root).decode(), nl=False)
    click.echo(f"report  {page}")


def _show(folder: RunFolder, as_json: bool) -> None:
    from cordee.faces.report.data import collect
    from cordee.faces.report.document import report_document
    from cordee.faces.report.text import render_text

    data = collect(folder)
    if as_json:
        print_json(report_document(data))
    else:
        click.echo(render_text(data), nl=False)
    click.echo(f"cordee: the report is not stored: only the owner of {folder.root} may write there", err=True)
