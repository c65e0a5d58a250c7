"""Its command."""

from __future__ import annotations

import click

from cordee.job.load import load_job


@click.command("window")
@click.argument("spec", default=".")
def command(spec: str) -> None:
    """Say how long the window of a job is open."""
    click.echo(f"open for {load_job(spec).job.window.open:g} s")
