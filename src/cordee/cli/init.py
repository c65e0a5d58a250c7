"""`cordee init`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.cli.options import json_option
from cordee.cli.output import print_json


@click.command()
@click.argument("directory", default=".", required=False)
@json_option
def command(directory: str, as_json: bool) -> None:
    """Write a commented cordee.toml for what is found in DIRECTORY (default: here). Never overwrites one.

    \b
    Example:
      cordee init my-training
    """
    from cordee.spec.init import write_draft

    path, notes = write_draft(Path(directory))
    if as_json:
        print_json({"schema": "cordee.init/1", "path": str(path), "notes": notes, "text": path.read_text()})
        return
    click.echo(f"wrote {path}")
    for note in notes:
        click.echo(f"  {note}")
    click.echo("`cordee check` shows what would run; `cordee run` runs it.")
