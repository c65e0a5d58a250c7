"""`cordee checkpoint prune`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option

SCHEMA = "cordee.checkpoint-prune/1"


@click.command("prune")
@click.argument("target", metavar="PATH|RUN", default="last", required=False)
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="How many stay of each run.")
@click.option("--milestones", type=click.IntRange(1), help="The first of every so many steps stays, too.")
@click.option("--yes", is_flag=True, help="Remove them; without it they are only named.")
@runs_option
@json_option
def command(target: str, keep: int, milestones: int | None, yes: bool, runs: str | None, as_json: bool) -> None:
    """Remove all checkpoints but the newest of each run, and milestones.

    Only whole checkpoints of `cordee.checkpointer` are ever removed, and none of a run that still trains here; what a
    script saved by itself stays.

    \b
    Example:
      cordee checkpoint prune checkpoints --keep 2
      cordee checkpoint prune checkpoints --keep 2 --milestones 10000 --yes
    """
    from cordee.core.draw.clean import clean
    from cordee.core.units import format_size
    from cordee.systems.checkpoints.library import library_of, prunable, remove

    library = library_of(target, runs)
    old, spared = prunable(library, keep, milestones or 0)
    if yes:
        remove(old)
    size = sum(one.bytes for one in old)
    if as_json:
        names = [one.document() for one in old]
        print_json({"schema": SCHEMA, "path": library.path, "removed": yes, "bytes": size, "checkpoints": names})
        return
    for one in old:
        click.echo(clean(f"{'removed' if yes else 'would go'}: {one.name} ({format_size(one.bytes)})"))
    for run in spared:
        click.echo(clean(f"left alone: those of {run}, which trains here"))
    then = "" if yes or not old else "; --yes removes them"
    click.echo(f"{len(old)} checkpoints, {format_size(size)}{then}")
