"""`cordee env export`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import cluster_option, say, workshop

EXPORT_SCHEMA = "cordee.export/1"


@click.command("export")
@click.argument("file")
@click.option("-o", "--output", metavar="FILE", help="Write it there (default: standard output).")
@click.option("--image", metavar="IMAGE", help="What it names as its image (default: as FILE has it).")
@cluster_option
@json_option
def command(file: str, output: str | None, image: str | None, cluster: str | None, as_json: bool) -> None:
    """Write the environment of FILE as a plain EDF, for readers that refuse Cordée's own tables.

    Nothing in it is inherited or to be expanded. --image names the image as the other reader finds it, such as the registry
    that `cordee env push` has copied it to.

    \b
    Example:
      cordee env export env.toml -o ~/.edf/train.toml
      cordee env export env.toml --image registry.site#team/train:1
    """
    from pathlib import Path

    from cordee.core.errors import CordeeError, UsageError
    from cordee.runs.folder import write_atomically

    text, dropped = workshop().plain(file, cluster_name(cluster), image)
    if output is not None:
        try:
            write_atomically(Path(output), text, mode=0o644)
        except CordeeError as error:
            said = error.text.rpartition(": ")[2]
            raise UsageError(f"the EDF cannot be written: {said}", given=output, next="-o FILE") from None
    if as_json:
        print_json({"schema": EXPORT_SCHEMA, "edf": text, "output": output, "left_out": dropped})
        return
    for name in dropped:
        say(f"warn: [{name}] is left out: other readers do not know it")
    if output is None:
        click.echo(text, nl=False)
