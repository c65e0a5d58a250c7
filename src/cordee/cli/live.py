"""`cordee watch`."""

from __future__ import annotations

import sys

import click

from cordee.cli.found import found, run_argument, state_of
from cordee.cli.options import json_option, runs_option
from cordee.cli.output import print_json
from cordee.cli.standing import stand
from cordee.report.run_document import run_document


@click.command()
@run_argument
@click.option("--once", is_flag=True, help="Print one picture and leave.")
@runs_option
@json_option
def command(run: str, once: bool, runs: str | None, as_json: bool) -> None:
    """Watch RUN (default: the last one): state, nodes, ranks, step, throughput, last messages. q leaves; the run goes on.

    \b
    Example:
      cordee watch last
    """
    folder = found(run, runs)
    if as_json:
        print_json(run_document(folder, stand(folder, state_of(folder))[0]))
        return
    from cordee.cli.watch import watch

    watch(folder.root, once=once or not sys.stdout.isatty())
