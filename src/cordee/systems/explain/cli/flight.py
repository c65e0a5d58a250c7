"""`cordee flight`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found


@click.command()
@click.argument("dumps", metavar="DIR|RUN", default="last", required=False)
@click.option("--attempt", type=click.IntRange(min=0), help="Look at this attempt's dumps (default: the newest).")
@runs_option
@json_option
def command(dumps: str, attempt: int | None, runs: str | None, as_json: bool) -> None:
    """Say which rank broke the collective that a training hangs in, from PyTorch's Flight Recorder dumps.

    DIR holds one dump per rank, named by rank (nccl_trace_rank_3, rank-3.pkl, rank-3.json); of a RUN the newest attempt's
    are taken. Nothing in a dump is executed. Exit code 1: a culprit, or a call that ranks disagree about, was found.

    \b
    Example:
      cordee flight /tmp/dumps
      cordee flight last --attempt 1
    """
    from cordee.core.draw.clean import clean
    from cordee.runs.folder import RunFolder
    from cordee.systems.explain.flight.analysis import analyse
    from cordee.systems.explain.flight.files import find_dumps
    from cordee.systems.explain.flight.rank_positions import add_places, state_of
    from cordee.systems.explain.flight.words import lines

    path = Path(dumps)
    run = None if path.is_dir() and not RunFolder(path).exists() else found(dumps, runs)
    if run is None:
        flight = analyse(find_dumps(path, attempt))
    else:
        folder = run.root / "flight"
        if not folder.is_dir():
            raise UsageError(
                "this run has no dumps", given=run.id, next="PyTorch writes them when a collective times out"
            )
        state = state_of(run)
        flight = analyse(find_dumps(folder, attempt), state.world_size)
        add_places(flight.findings, run, state)
    document: dict[str, Any] = flight.document()
    if as_json:
        print_json(document)
    else:
        for line in lines(document):
            click.echo(clean(line))
    if not flight.judged:
        raise click.exceptions.Exit(EXIT_USAGE)
    raise click.exceptions.Exit(EXIT_BAD if flight.bad else EXIT_DONE)
