"""`cordee stragglers`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_DONE, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of


@click.command()
@run_argument
@click.option("--on/--off", "wanted", default=None, help="Begin or stop to look for them, while the run goes on.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say which nodes the next restart would leave out, and which would take their place.",
)
@runs_option
@json_option
def command(run: str, wanted: bool | None, dry_run: bool, runs: str | None, as_json: bool) -> None:
    """Show the ranks and nodes that the others wait for: by how much, since when, and why.

    \b
    Example:
      cordee stragglers last
      cordee stragglers last --off
      cordee stragglers last --dry-run
    """
    from cordee.core.draw.clean import clean
    from cordee.job.terminal.requests import leave_request
    from cordee.systems.explain.slow.views import straggler_view

    folder = found(run, runs)
    state = state_of(folder)
    if wanted is not None:
        if state.state != "running":
            raise UsageError(
                "only in a run that goes on stragglers can be looked for, or not",
                given=f"{folder.id}, which is {state.state}",
                next="see [observe] stragglers of the job document",
            )
        leave_request(folder, {"request": "stragglers", "on": wanted})
        told = "will be looked for" if wanted else "will not be looked for any more"
        click.echo(f"stragglers {told} in {folder.id}", err=as_json)
    view = straggler_view(folder, state)
    if as_json:
        print_json(view.document())
    elif wanted is None:
        for line in view.lines(dry_run):
            click.echo(clean(line))
    raise click.exceptions.Exit(EXIT_DONE)
