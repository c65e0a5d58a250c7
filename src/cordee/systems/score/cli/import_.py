"""`cordee score import`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

IMPORT_SCHEMA = "cordee.score-import/1"


@click.command("import")
@click.argument("format", type=click.Choice(["gssr", "prometheus", "dcgm-exporter"]))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, metavar="DIR", type=click.Path(path_type=Path), help="The new recording."
)
@json_option
def command(format: str, files: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Make a recording of what another tool has measured: FILES, or folders of them.

    FORMAT is gssr (the JSON of gssr 0.4, the CSV of gssr-record 2), prometheus (answers of query_range with dcgm-exporter's
    metrics) or dcgm-exporter (text scrapes). What could not be carried over is said.

    \b
    Example:
      cordee score import gssr profile_out/ -o recording
      cordee score import prometheus range.json -o recording
      cordee score recording
    """
    from cordee.core.words import counted
    from cordee.systems.score.exchange.import_formats import import_files

    made = import_files(format, files, output)
    if as_json:
        print_json({"schema": IMPORT_SCHEMA, "format": format, "folder": str(output), **made})
        return
    gpus, nodes = counted(int(made["devices"]), "GPU"), counted(len(made["nodes"]), "node")
    click.echo(f"{output}: {gpus} on {nodes}, {made['seconds']:.0f} s every {made['interval_s']:g} s")
    for remark in made["remarks"]:
        click.echo(f"note: {remark}", err=True)
    click.echo(f"next: cordee score {output}", err=True)
