"""`cordee stacks`."""

from __future__ import annotations

import time

import click

from cordee.core.errors import EXIT_DONE, CordeeError, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.folder import RunFolder

# Ten seconds to collect, thirty where a hang is collected and judged first, and what it takes to see the request and to write what came.
_PATIENCE_S, _POLL_S = 45.0, 0.2


@click.command()
@run_argument
@click.option("--hang", "number", type=click.IntRange(min=1), help="Those of this hang, or of this earlier question.")
@click.option("--all-frames", is_flag=True, help="Show calls within libraries, too.")
@runs_option
@json_option
def command(run: str, number: int | None, all_frames: bool, runs: str | None, as_json: bool) -> None:
    """Show where all ranks of a run stand, now, or stood when it hung: their Python stacks as one tree.

    A run that goes on is asked, which takes some seconds and disturbs no rank; of one that has ended the newest are shown.

    \b
    Example:
      cordee stacks last
      cordee stacks last --hang 1 --all-frames
    """
    from cordee.core.draw.clean import clean
    from cordee.systems.explain.hang.evidence import hang_numbers, read_hang
    from cordee.systems.explain.hang.views import HangView

    folder = found(run, runs)
    if number is None and state_of(folder).state == "running":
        number = _asked(folder)
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


def _asked(folder: RunFolder) -> int:
    """Have stacks collected now and return their number.

    Raises:
        CordeeError: nobody has answered.
    """
    from cordee.job.terminal.requests import leave_request
    from cordee.systems.explain.hang.evidence import hang_numbers

    before = set(hang_numbers(folder.root))
    leave_request(folder, {"request": "stacks"})
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for number in sorted(set(hang_numbers(folder.root)) - before):
            if (folder.root / "hangs" / str(number) / "hang.json").exists():
                return number
        time.sleep(_POLL_S)
    raise CordeeError(
        f"the run has told no stacks within {_PATIENCE_S:.0f} s",
        given=folder.id,
        allowed="a run whose ranks run, with [hang] enabled",
        next="try again once its ranks have started, or look at earlier ones with --hang",
    )
