"""`cordee checkpoint verify`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option

SCHEMA = "cordee.checkpoint-verify/1"


@click.command("verify")
@click.argument("target", metavar="PATH|RUN", default="last", required=False)
@runs_option
@json_option
def command(target: str, runs: str | None, as_json: bool) -> None:
    """Compare every file of checkpoints with the size and check sum that were written with it.

    PATH is one checkpoint or a folder of them; of a RUN all in its folder are read. What a script saved by itself has no check
    sums: it is said to be unchecked. Exit code 1: one is damaged or not whole, or there is none.

    \b
    Example:
      cordee checkpoint verify last
      cordee checkpoint verify checkpoints/step-000001000
    """
    from cordee.core.draw.clean import clean
    from cordee.systems.checkpoints.library import library_of, verified

    library = library_of(target, runs)
    answers = []
    for one in library.checkpoints:
        problem, checked = verified(one)
        answers.append({"name": one.name, "path": one.path, "ok": not problem, "checked": checked, "problem": problem})
        if not as_json:
            said = f"damaged: {problem}" if problem else "whole" if checked else "whole, no check sums to compare with"
            click.echo(clean(f"{one.name}: {said}"))
    if as_json:
        print_json({"schema": SCHEMA, "path": library.path, "checkpoints": answers})
    elif not answers:
        click.echo(clean(f"no checkpoint lies in {library.path}"))
    raise click.exceptions.Exit(EXIT_DONE if answers and all(answer["ok"] for answer in answers) else EXIT_BAD)
