"""`cordee data remove`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.data.cli.named import catalogue_option, place_of

SCHEMA = "cordee.remove/1"


@click.command("remove")
@click.argument("source", metavar="DATASET")
@click.option("--keys", required=True, metavar="FILE", type=click.Path(path_type=Path), help="Keys, one a line.")
@click.option("--to", required=True, metavar="FOLDER", help="A new or empty folder.")
@click.option("--reason", default="", metavar="TEXT", help="Why, where the list does not say it.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes that write (default: cores, at most 4)."
)
@catalogue_option
@json_option
def command(
    source: str, keys: Path, to: str, reason: str, workers: int | None, cluster: str | None, as_json: bool
) -> None:
    """Write a packed data set without the samples of a list of keys, with a record of what and why beside it, removed.json.

    The same set and the same list give the same bytes. The source stays as it is.

    \b
    Example:
      cordee data remove /scratch/images --keys withdrawn.txt --to /scratch/images-2 --reason "consent withdrawn"
    """
    from cordee.systems.data.pack.removal import read_keys, remove

    wanted = read_keys(keys, reason)
    done = remove(place_of(source, cluster), wanted, to, workers=workers or min(4, len(os.sched_getaffinity(0))))
    if as_json:
        told = {"path": to, "id": done.packed.id, "samples": done.packed.samples, "bytes": done.packed.bytes}
        print_json({"schema": SCHEMA, **told, "removed": len(done.removed), "not_found": done.not_found})
        return
    click.echo(f"{to}: {done.packed.samples:,} samples, {len(done.removed):,} removed: see {to}/removed.json")
    if done.not_found:
        shown = ", ".join(done.not_found[:5])
        click.echo(f"warn: {len(done.not_found)} keys are of no sample: {shown}", err=True)
