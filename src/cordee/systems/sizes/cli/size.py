"""`cordee size`."""

from __future__ import annotations

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, state_of


@click.command()
@click.argument("runs_named", metavar="[RUN]...", nargs=-1)
@runs_option
@json_option
def command(runs_named: tuple[str, ...], runs: str | None, as_json: bool) -> None:
    """Say what to ask for next time, by what RUN (default: the last one) used: each change with its reason and risk.

    Several runs of one job tell more than one. Changes nothing.

    \b
    Example:
      cordee size last
    """
    from cordee.job.submit import plan_of
    from cordee.systems.sizes.job_class import class_words
    from cordee.systems.sizes.right_size import right_size
    from cordee.systems.sizes.used import use_of

    folders = [found(name, runs) for name in runs_named or ("last",)]
    for folder in folders:
        if not state_of(folder).ended:
            raise UsageError("this run has not ended", given=folder.id, next="ask again when it has")
    size = right_size([use_of(folder) for folder in folders])
    shorter = class_words(plan_of(folders[-1]), size.request)
    if as_json:
        print_json({**size.document(), "class": shorter})
        return
    for line in [*size.lines(), *([f"class: {shorter}"] if shorter else [])]:
        click.echo(line)
