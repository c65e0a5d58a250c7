"""`cordee score calibrate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option


@click.command("calibrate")
@click.option(
    "--seconds", type=click.FloatRange(12, 600), default=20.0, show_default=True, help="Of steady time for each GPU."
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: ~/.config/cordee/gpu-caps.toml."
)
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="The kernels' Python, with torch (default: this)."
)
@click.option(
    "--from", "recorded", type=click.Path(path_type=Path), metavar="DIR", help="Take the caps from recordings."
)
@json_option
def command(seconds: float, output: Path | None, python: str, recorded: Path | None, as_json: bool) -> None:
    """Measure what counts as full on this machine's GPUs, and keep it for later scores.

    A matrix product, a triad and multiply-adds run on every GPU that is visible, while it is sampled; nothing else should use it.
    --from takes the caps from recordings of `cordee score validate` instead, and runs nothing.

    \b
    Example:
      cordee score calibrate
      srun --gpus=1 cordee score calibrate --output caps.toml
      cordee score calibrate --from validation --output caps.toml
    """
    from cordee.core.documents.config_paths import config_folder
    from cordee.systems.score.calibrate import calibrate, caps_of_recordings, write_caps

    if recorded is not None:
        found = caps_of_recordings(recorded)
    else:
        found = calibrate(seconds, python, lambda words: click.echo(words, err=True))
    target = output or config_folder(os.environ) / "gpu-caps.toml"
    write_caps(target, found)
    if as_json:
        print_json({**found.document(), "file": str(target)})
        return
    for model, caps in found.caps.items():
        click.echo(f"{model}: " + ", ".join(f"{cap} {value:.3f}" for cap, value in caps.items()))
    for one in found.measured:
        if one.value is None:
            click.echo(f"note: {one.cap} of {one.device or 'a GPU'} not measured: {one.text}", err=True)
    click.echo(f"written to {target}")
