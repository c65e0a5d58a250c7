"""`cordee checkpoint export`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.core.units import parse_size
from cordee.job.terminal.options import json_option, runs_option

SCHEMA = "cordee.checkpoint-export/1"


@click.command("export")
@click.argument("target", metavar="PATH|RUN", default="last", required=False)
@click.option("--to", "folder", required=True, metavar="DIR", help="A folder that is not there yet.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Convert floating-point weights.")
@click.option("--shard-size", default="5GB", show_default=True, help="The most of one file.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Files written at once.")
@runs_option
@json_option
def command(
    target: str, folder: str, dtype: str | None, shard_size: str, workers: int, runs: str | None, as_json: bool
) -> None:
    """Write the weights of a checkpoint as safetensors, whole tensors whatever number of ranks saved them.

    Of a RUN, and of a folder of checkpoints, the newest whole one is taken. The files are named as Hugging Face's libraries look
    for them (`model.safetensors`, or `model-00001-of-00003.safetensors` with an index). Files are compared with their check
    sums before. Nothing in a checkpoint is executed. Needs PyTorch.

    \b
    Example:
      cordee checkpoint export last --to weights
      cordee checkpoint export checkpoints/step-000001000 --to weights --dtype bfloat16
    """
    from cordee.core.draw.clean import clean
    from cordee.core.errors import UsageError
    from cordee.core.units import format_size
    from cordee.systems.checkpoints.library import library_of, newest_on
    from cordee.systems.checkpoints.safetensors import export

    try:
        most = parse_size(shard_size)
    except ValueError as error:
        raise UsageError(f"--shard-size: {error}", given=shard_size, allowed='a size such as "5GB"') from None
    chosen = newest_on(library_of(target, runs))
    done = export(chosen.path, folder, dtype, most, workers)
    if as_json:
        print_json({"schema": SCHEMA, "checkpoint": chosen.path, **done})
        return
    size = format_size(done["bytes"])
    click.echo(clean(f"{done['tensors']} tensors of {chosen.name}, {size} in {len(done['files'])} files in {folder}"))
