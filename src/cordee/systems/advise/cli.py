"""`cordee advise`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument


@click.command()
@run_argument
@runs_option
@json_option
def command(run: str, runs: str | None, as_json: bool) -> None:
    """Say why RUN (default: the last one) waits or failed, and what to change. Changes nothing; exit code 1: it failed.

    \b
    Example:
      cordee advise last
    """
    from cordee.core.draw.clean import clean
    from cordee.systems.advise.advice import advise
    from cordee.systems.advise.collect import collect_situation

    advice = advise(collect_situation(found(run, runs)))
    if as_json:
        print_json(advice.document())
    else:
        for line in advice.lines():
            click.echo(clean(line))
    raise click.exceptions.Exit(EXIT_BAD if advice.failed else EXIT_DONE)
