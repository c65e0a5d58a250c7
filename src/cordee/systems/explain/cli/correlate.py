"""`cordee correlate`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument


@click.command()
@run_argument
@click.option("--last", metavar="DURATION", help="Look at the last part of the run only, such as 30min.")
@runs_option
@json_option
def command(run: str, last: str | None, runs: str | None, as_json: bool) -> None:
    """Say which metrics of which devices moved with the time of a step, how strongly, and which moved first.

    \b
    Example:
      cordee correlate last
      cordee correlate last --last 30min --json
    """
    from cordee.core.draw.clean import clean
    from cordee.core.units import parse_duration
    from cordee.systems.explain.correlation.views import correlations_of
    from cordee.telemetry.store.reader import open_run

    opened = open_run(found(run, runs).root)
    start = None
    if last is not None:
        stops = [float(rows["time"].max()) for rows in opened.events().values() if len(rows)]
        start = max(stops) - parse_duration(last) if stops else None
    view = correlations_of(opened, start)
    if as_json:
        print_json(view.document())
    else:
        for line in view.lines():
            click.echo(clean(line))
    raise click.exceptions.Exit(EXIT_DONE)
