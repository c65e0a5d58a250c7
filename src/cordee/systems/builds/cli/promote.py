"""`cordee env promote`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import cluster_option, say, workshop

PROMOTE_SCHEMA = "cordee.promote/1"


@click.command("promote")
@click.argument("file")
@click.argument("stage")
@cluster_option
@json_option
def command(file: str, stage: str, cluster: str | None, as_json: bool) -> None:
    """Take the image that was built from FILE to STAGE of the site, if it is what the stage asks for.

    Stages are named in the cluster's profile: each has a store, what it asks for (scanned, signed), and how much it may hold.

    \b
    Example:
      cordee env promote env.toml test
      cordee env promote env.toml production
    """
    from cordee.job.cluster import load_cluster
    from cordee.systems.builds.made import made_image
    from cordee.systems.builds.stages import promote

    name = cluster_name(cluster)
    made = made_image(file, name, workshop(), say)
    done = promote(made, stage, load_cluster(name).environment.stages, workshop(), name, say)
    if as_json:
        told = {"stage": done.stage, "digest": made.digest, "path": str(done.path), "checked": list(done.checked)}
        print_json({"schema": PROMOTE_SCHEMA, **told})
        return
    for line in done.checked:
        click.echo(line)
    click.echo(f"{made.given.image} is in the stage {done.stage}: {done.path}")
