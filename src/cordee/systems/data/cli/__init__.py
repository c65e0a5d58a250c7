"""`cordee data`."""

from __future__ import annotations

import click

from cordee.core.terminal.group import LazyGroup

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "survey": ("cordee.systems.data.cli.survey", "Count a data set, forecast what an epoch costs, and say what to do."),
    "pack": ("cordee.systems.data.cli.pack", "Pack many small files into few large shards with an index."),
    "verify": ("cordee.systems.data.cli.verify", "Compare a packed data set with its index, every byte."),
    "unpack": ("cordee.systems.data.cli.unpack", "Write the files of a packed data set as they were."),
    "stage": ("cordee.systems.data.cli.stage", "Bring a data set to this node's memory or disk, once for all jobs."),
    "bench": ("cordee.systems.data.cli.bench", "Measure the loader alone, beside what storage gives."),
    "fetch": ("cordee.systems.data.cli.fetch", "Fetch a list of URLs, with checks, at a rate that sites bear."),
    "list": ("cordee.systems.data.cli.list", "List the data sets that the site keeps for all."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Data sets: survey them, pack small files, verify, and measure the loader alone.

    \b
    Example:
      cordee data survey /store/images
      cordee data pack /store/images --to /scratch/images
      cordee data bench /scratch/images
    """
