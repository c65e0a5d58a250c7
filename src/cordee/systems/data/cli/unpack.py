"""`cordee data unpack`."""

from __future__ import annotations

import os

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.data.cli.named import catalogue_option, place_of

SCHEMA = "cordee.systems.data.unpack/1"
_SHOWN = 20


@click.command("unpack")
@click.argument("path", metavar="DATASET")
@click.option("--to", required=True, metavar="FOLDER", help="A new or empty folder.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only files like n01*/*.jpg.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes that write (default: cores, at most 4)."
)
@catalogue_option
@json_option
def command(path: str, to: str, only: tuple[str, ...], workers: int | None, cluster: str | None, as_json: bool) -> None:
    """Write the files of a packed data set as they were: names, folders and bytes.

    DATASET is a path, an s3:// address, or a name: of [data] in the cordee.toml here, or of the site's catalogue. Modes,
    owners and times are not kept by packing. Nothing is written outside of FOLDER. Exit code 1: files whose bytes are damaged
    are named, and not written.

    \b
    Example:
      cordee data unpack /scratch/images --to /scratch/files
      cordee data unpack /scratch/images --to sample --only 'n01440764/*'
    """
    from cordee.core.units import format_duration, format_size
    from cordee.systems.data.cli.progress import progress
    from cordee.systems.data.pack.shards.indexes import open_index_at
    from cordee.systems.data.pack.unpack import unpack

    path = place_of(path, cluster)
    index = open_index_at(path)
    with progress("unpacking", index.samples, index.bytes) as tell:
        found = unpack(path, to, only=only, workers=workers or min(4, len(os.sched_getaffinity(0))), tell=tell)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "path": to,
                "files": found.files,
                "bytes": found.bytes,
                "seconds": found.seconds,
                "damaged": found.damaged,
                "refused": found.refused,
            }
        )
    else:
        for kind, names in (("damaged, not written", found.damaged), ("unsafe name, not written", found.refused)):
            for name in names[:_SHOWN]:
                click.echo(f"{kind}: {name}", err=True)
            if len(names) > _SHOWN:
                click.echo(f"{kind}: {len(names) - _SHOWN} more: --json names all", err=True)
        click.echo(f"{to}: {found.files:,} files, {format_size(found.bytes)}; {format_duration(found.seconds)}")
    raise click.exceptions.Exit(EXIT_BAD if found.damaged or found.refused else EXIT_DONE)
