"""`cordee diff`."""

from __future__ import annotations

import json
from typing import Any

import click

from cordee.core.draw.clean import one_line
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found


@click.command()
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@runs_option
@json_option
def command(before: str, after: str, runs: str | None, as_json: bool) -> None:
    """Say in what two runs differ: code, documents, environment, data, results, and whether these agree bit for bit. Values of variables are not shown.

    \b
    Example:
      cordee diff char-gpt-20261121T012244Z-kqzv last
    """
    from cordee.systems.sizes.agreement import agreement
    from cordee.systems.sizes.difference import SCHEMA, changes

    one, other = found(before, runs), found(after, runs)
    differ, agree = changes(one, other), agreement(one, other)
    if as_json:
        listed = [change._asdict() for change in differ]
        print_json({"schema": SCHEMA, "runs": [one.id, other.id], "changes": listed, "agreement": agree.document()})
        return
    for change in differ:
        click.echo(one_line(f"{change.what}: {_shown(change.before)} -> {_shown(change.after)}"))
    if not differ:
        click.echo("no difference")
    click.echo(one_line(agree.line()))


def _shown(value: Any) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else json.dumps(value)
