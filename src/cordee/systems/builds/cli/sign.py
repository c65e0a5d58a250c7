"""`cordee env sign`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import cluster_option, say, workshop

SIGN_SCHEMA = "cordee.sign/1"


@click.command("sign")
@click.argument("file")
@click.option(
    "--key", required=True, metavar="KEY", help="A private key of OpenSSH, or the public one of a key in an agent."
)
@cluster_option
@json_option
def command(file: str, key: str, cluster: str | None, as_json: bool) -> None:
    """Sign the image that was built from FILE by its digest, for stages that ask for a signature.

    \b
    Example:
      cordee env sign env.toml --key ~/.ssh/id_ed25519
    """
    from pathlib import Path

    from cordee.systems.builds.made import made_image
    from cordee.systems.builds.stages import sign

    made = made_image(file, cluster_name(cluster), workshop(), say)
    path = sign(made.digest, Path(key).expanduser())
    if as_json:
        print_json({"schema": SIGN_SCHEMA, "digest": made.digest, "signature": str(path)})
    else:
        click.echo(f"{made.digest}  {path}")
