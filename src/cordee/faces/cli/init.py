"""`cordee init`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option


@click.command()
@click.argument("place", default=".", required=False)
@click.option("--from", "source", metavar="FILE", help="Read this job script instead of the most likely one.")
@json_option
def command(place: str, source: str | None, as_json: bool) -> None:
    """Write a commented cordee.toml for what is found in PLACE: a folder (default: here), or a job script, whose
    document is written here, where it would be submitted. Never overwrites one.

    Job scripts are sbatch scripts, and submit files of HTCondor. Where one is found, the document does what it does; what
    of it is not carried over is listed. Nothing of it is run.

    \b
    Example:
      cordee init my-training
      cordee init slurm/train.sbatch
      cordee init train.sub
      cordee init my-training --from my-training/train.sbatch
    """
    from cordee.backends.job_scripts.render import group_left
    from cordee.job.init import write_draft

    if source is None and Path(place).is_file():
        place, source = ".", place
    written = write_draft(Path(place), Path(source) if source else None)
    if as_json:
        print_json(
            {
                "schema": "cordee.init/1",
                "path": str(written.path),
                "notes": written.notes,
                "text": written.path.read_text(),
                "source": str(written.source) if written.source else None,
                "left": [one.document() for one in written.left],
            }
        )
        return
    click.echo(f"wrote {written.path}")
    for note in written.notes:
        click.echo(f"  {note}")
    if written.left:
        click.echo("  not carried over, or different here:", err=True)
    for why, group in group_left(written.left).items():
        click.echo(f"  - {why}", err=True)
        for one in group:
            click.echo(f"      line {one.line}: {one.shown}", err=True)
    click.echo("`cordee check` shows what would run; `cordee run` runs it.")
