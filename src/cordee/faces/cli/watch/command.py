"""`cordee watch`."""

from __future__ import annotations

import sys

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument


@click.command()
@run_argument
@click.option("--once", is_flag=True, help="Print one picture and leave.")
@runs_option
@json_option
def command(run: str, once: bool, runs: str | None, as_json: bool) -> None:
    """Watch RUN (default: the last one): its state, resources over all ranks, throughput and loss, who differs, output.

    q leaves; the run continues. `cordee serve` shows all ranks, findings and heat maps.

    \b
    Example:
      cordee watch last
      cordee watch last --once
    """
    folder = found(run, runs)
    from cordee.faces.cli.watch.screen import WatchScreen, watch
    from cordee.faces.report.completion import completed

    if as_json:
        view = WatchScreen(folder)
        view.read()
        completed(folder, view.state)
        print_json(view.document())
        return
    report = completed(folder, watch(folder.root, once=once or not sys.stdout.isatty()))
    if report is not None:
        click.echo(f"report      {report}")
