"""`cordee env lock`."""

from __future__ import annotations

from dataclasses import asdict

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import builder_of, cluster_option


@click.command("lock")
@click.argument("file")
@click.option("--check", is_flag=True, help="Change nothing: exit code 1 where the lock is not up to date.")
@cluster_option
@json_option
def command(file: str, check: bool, cluster: str | None, as_json: bool) -> None:
    """Write down every version, file and hash that the recipe of FILE comes to now, in FILE's name with .lock.json.

    Versions are chosen again, by the image's apt, by rattler, and by pip or uv, and the files are fetched. From then on
    `cordee env build` needs no network, and makes the same image on another day, by another user.

    \b
    Example:
      cordee env lock env.toml
    """
    from cordee.systems.builds.builder import BuildWishes
    from cordee.systems.builds.lock import LOCK_SCHEMA

    wishes = BuildWishes(cluster_name(cluster), anew=not check, frozen=check)
    lock = builder_of(file, wishes).lock()
    document = lock.document()
    if as_json:
        print_json({**document, "schema": LOCK_SCHEMA})
        return
    for package in lock.packages:
        told = asdict(package)
        click.echo("{kind:5} {name} {version}  {hash}".format(**told))
    if lock.base:
        click.echo(f"base  {lock.base['image']}  {lock.base['digest']}")
