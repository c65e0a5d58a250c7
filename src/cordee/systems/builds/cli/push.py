"""`cordee env push`."""

from __future__ import annotations

import click

from cordee.core.errors import CordeeError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import cluster_option, say, workshop

PUSH_SCHEMA = "cordee.push/1"


@click.command("push")
@click.argument("file")
@click.argument("reference")
@click.option("--compress", is_flag=True, help="Compress layers on the way, which makes another digest.")
@cluster_option
@json_option
def command(file: str, reference: str, compress: bool, cluster: str | None, as_json: bool) -> None:
    """Copy the image that was built from FILE to a registry, byte for byte, and print its digest there. Its lock says so to services on Kubernetes.

    The registry is asked with the logins of skopeo, podman or docker, as by `cordee env pull`.

    \b
    Example:
      cordee env push env.toml registry.site/team/train:1
    """
    from cordee.systems.builds.cache import own_cache
    from cordee.systems.builds.made import keep_pushed, made_image

    made = made_image(file, cluster_name(cluster), workshop(), say)
    with own_cache().open().temporary() as work:
        pushed = workshop().push(made.layout, reference, compress, work, say)
    digest = pushed.rpartition("@")[2]
    try:
        keep_pushed(made, pushed)
    except CordeeError as error:
        say(f"warn: services will not find it there: {error.text}")
    if as_json:
        print_json({"schema": PUSH_SCHEMA, "reference": reference, "digest": digest, "image": made.digest})
    else:
        click.echo(f"{reference}  {digest}")
