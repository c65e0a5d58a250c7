"""`cordee cluster`."""

from __future__ import annotations

import click

from cordee.cli.options import json_option
from cordee.cli.output import print_findings, print_json


@click.group()
def command() -> None:
    """Show what Cordée knows of clusters.

    \b
    Example:
      cordee cluster list
      cordee cluster show local
      cordee cluster discover
    """


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the clusters that have a profile.

    \b
    Example:
      cordee cluster list
    """
    from cordee.spec.cluster import list_clusters

    names = list_clusters()
    if as_json:
        print_json({"schema": "cordee.clusters/1", "clusters": names})
    else:
        click.echo("\n".join(names))


@command.command("show")
@click.argument("name", default="local", required=False)
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show the profile of one cluster.

    \b
    Example:
      cordee cluster show local --json
    """
    from cordee.spec.cluster import load_cluster

    profile = load_cluster(name).model_dump(mode="json")
    if as_json:
        print_json({"schema": "cordee.cluster/1", **profile})
        return
    for key, value in profile.items():
        if value not in (None, [], {}):
            click.echo(f"{key:20} {value}")


@command.command("discover")
@click.option("--name", metavar="NAME", help="Name of the cluster (default: Slurm's own name of it).")
@click.option("--write", is_flag=True, help="Write it into your folder of profiles instead of printing it.")
@click.option("--force", is_flag=True, help="With --write: replace the profile that is there.")
@json_option
def discover_command(name: str | None, write: bool, force: bool, as_json: bool) -> None:
    """Draft a profile of the Slurm that answers here: partitions, limits, GPUs, accounts.

    \b
    Example:
      cordee cluster discover
      cordee cluster discover --name alps --write
    """
    from cordee.spec.discover import discover

    draft = discover(name)
    if write:
        draft.write(force=force)
    if as_json:
        print_json(draft.document(written=write))
        return
    if not write:
        click.echo(draft.text, nl=False)
    print_findings(list(draft.findings))
    if write:
        click.echo(f"cordee: wrote {draft.path}", err=True)
