"""`cordee flight`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found


@click.command()
@click.argument("dumps", metavar="DIR|RUN", default="last", required=False)
@click.option("--attempt", type=click.IntRange(min=0), help="Look at this attempt's dumps (default: the newest).")
@click.option("--matrix", is_flag=True, help="Say who sent how much to whom and who waited for whom, per dimension.")
@runs_option
@json_option
def command(dumps: str, attempt: int | None, matrix: bool, runs: str | None, as_json: bool) -> None:
    """Say which rank broke the collective that a training hangs in, from PyTorch's Flight Recorder dumps.

    DIR holds one dump per rank, named by rank (nccl_trace_rank_3, rank-3.pkl, rank-3.json); of a RUN the newest attempt's
    are taken. Nothing in a dump is executed. Exit code 1: a culprit, or a call that ranks disagree about, was found.

    \b
    Example:
      cordee flight /tmp/dumps
      cordee flight last --attempt 1
      cordee flight last --matrix
    """
    from cordee.core.draw.clean import clean
    from cordee.runs.folder import RunFolder
    from cordee.systems.explain.flight.views import flight_of_folder, flight_of_run
    from cordee.systems.explain.flight.words import lines, traffic_lines

    path = Path(dumps)
    if path.is_dir() and not RunFolder(path).exists():
        flight, document = flight_of_folder(path, attempt, matrix=matrix)
    else:
        flight, document = flight_of_run(found(dumps, runs), attempt, matrix=matrix)
    if as_json:
        print_json(document)
    else:
        for line in [*lines(document), *traffic_lines(document.get("traffic"))]:
            click.echo(clean(line))
    if not flight.judged:
        raise click.exceptions.Exit(EXIT_USAGE)
    raise click.exceptions.Exit(EXIT_BAD if flight.bad else EXIT_DONE)
