"""`cordee stacks`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_DONE, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument


@click.command()
@run_argument
@click.option("--hang", "number", type=click.IntRange(min=1), help="Of this hang (default: the newest).")
@click.option("--all-frames", is_flag=True, help="Show calls within libraries, too.")
@runs_option
@json_option
def command(run: str, number: int | None, all_frames: bool, runs: str | None, as_json: bool) -> None:
    """Show where all ranks of a run stood when it hung: their Python stacks as one tree, equal ones told once.

    \b
    Example:
      cordee stacks last
      cordee stacks last --hang 1 --all-frames
    """
    from cordee.core.draw.clean import clean
    from cordee.systems.explain.hang.evidence import hang_numbers, read_hang
    from cordee.systems.explain.hang.views import HangView

    folder = found(run, runs)
    numbers = hang_numbers(folder.root)
    if not numbers:
        raise UsageError(
            "no stacks were collected of this run", given=folder.id, next="they are, when no rank goes on: see [hang]"
        )
    view = HangView(read_hang(folder.root, number or numbers[-1]))
    if as_json:
        print_json(view.stacks_document())
    else:
        for line in view.stacks_lines(every_frame=all_frames):
            click.echo(clean(line))
    raise click.exceptions.Exit(EXIT_DONE)
