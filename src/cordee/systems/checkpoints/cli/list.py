"""`cordee checkpoint list`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option

SCHEMA = "cordee.checkpoints/1"


@click.command("list")
@click.argument("target", metavar="PATH|RUN", default="last", required=False)
@runs_option
@json_option
def command(target: str, runs: str | None, as_json: bool) -> None:
    """List the checkpoints of a RUN, or those in a folder: step, size, which run made them, whether they are whole.

    A run's checkpoints are those in the folder that it saves in, also other runs'. Looked at are names and sizes; `verify` reads
    all bytes.

    \b
    Example:
      cordee checkpoint list
      cordee checkpoint list checkpoints
    """
    from cordee.core.draw.clean import clean
    from cordee.core.units import format_size, utc_text
    from cordee.systems.checkpoints.library import library_of

    library = library_of(target, runs)
    if as_json:
        print_json(
            {"schema": SCHEMA, "path": library.path, "checkpoints": [one.document() for one in library.checkpoints]}
        )
        return
    for one in library.checkpoints:
        step = "-" if one.step is None else str(one.step)
        state = "" if one.complete else f"  not whole: {one.reason}"
        made = f"{one.run or 'unknown run'}, {utc_text(one.time)}"
        click.echo(clean(f"{one.name:<24} step {step:<10} {format_size(one.bytes):>9}  {made}{state}"))
    if not library.checkpoints:
        click.echo(clean(f"no checkpoint lies in {library.path}"))
