"""`cordee service backup|restore|move`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.core.units import format_size
from cordee.job.terminal.options import duration, json_option
from cordee.systems.services.blueprint import TARGETS, Blueprint, Target
from cordee.systems.services.cli.deployment import print_status, shown, silent, told


@click.command("backup")
@click.argument("service")
@click.option("-o", "--output", metavar="FILE", help="The file (default: one below the service's folder).")
@json_option
def backup(service: str, output: str | None, as_json: bool) -> None:
    """Write a service's blueprint, secrets and volumes into one file, mode 0600. A service that runs is stopped meanwhile.

    \b
    Example:
      cordee service backup mlflow -o mlflow.tar
    """
    from cordee.systems.services.backup import back_up
    from cordee.systems.services.instance import find_service

    path = Path(output).absolute() if output else None
    written = back_up(find_service(service), path, silent if as_json else told)
    if as_json:
        print_json({"schema": "cordee.service-backup/1", **written._asdict(), "path": str(written.path)})
        return
    click.echo(f"{written.path}: {format_size(written.bytes)}, {written.files} files; it holds the service's secrets")
    for name in written.left_out:
        click.echo(f"cordee: the volume {name} is left out: backup = false", err=True)


@click.command("restore")
@click.argument("source")
@click.option("--name", help="The service's name (default: as it was called).")
@click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local).")
@click.option("--target", type=click.Choice(TARGETS[:3]), help="What it runs on (default: as it was).")
@click.option(
    "--again", is_flag=True, help="In place of a service of this name that is stopped, whose data is removed."
)
@click.option("--no-start", is_flag=True, help="Only bring its folder back.")
@click.option(
    "--wait", default="10min", show_default=True, metavar="DURATION", help="How long to wait until it is ready."
)
@json_option
def restore(
    source: str,
    name: str | None,
    cluster: str | None,
    target: Target | None,
    again: bool,
    no_start: bool,
    wait: str,
    as_json: bool,
) -> None:
    """Make a service of a backup, or of what a run has kept of a service of its job (services/NAME of its folder).

    \b
    Example:
      cordee service restore mlflow.tar
      cordee service restore runs/char-gpt-20261124T120000Z-abcd/services/tracking --name tracking
    """
    from cordee.job.cluster import load_cluster
    from cordee.job.terminal.options import cluster_name
    from cordee.systems.services.backup import restore as restored
    from cordee.systems.services.draft import require_name
    from cordee.systems.services.start import Wish, default_target

    place = cluster_name(cluster)
    profile = load_cluster(place)

    def changed(wish: Wish, blueprint: Blueprint) -> Wish:
        same = wish.target if place == wish.cluster else None
        return replace(wish, cluster=place, target=default_target(profile, target or same, blueprint))

    wait_s = None if no_start else duration(wait, "--wait")
    wanted = require_name(name) if name else None
    now = restored(Path(source), wanted, changed, again, wait_s, silent if as_json else told)
    shown(now, as_json)


@click.command("move")
@click.argument("service")
@click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local).")
@click.option("--target", type=click.Choice(TARGETS[:3]), help="What it runs on (default: what fits there).")
@click.option(
    "--ask", "paths", multiple=True, metavar="PATH", help="What is asked before and after (default: [closed] path)."
)
@json_option
def move(service: str, cluster: str | None, target: Target | None, paths: tuple[str, ...], as_json: bool) -> None:
    """Have a service run on another target, with its data, and compare what it answers; what goes wrong brings it back.

    \b
    Example:
      cordee service move mlflow --on alps
      cordee service move mlflow --target podman --ask /version
    """
    from cordee.job.cluster import load_cluster
    from cordee.job.terminal.options import cluster_name
    from cordee.systems.services.backup import move as moved
    from cordee.systems.services.instance import find_service
    from cordee.systems.services.start import default_target

    place = cluster_name(cluster)
    folder = find_service(service)
    there = default_target(load_cluster(place), target, folder.blueprint().blueprint)
    done = moved(folder, there, place, list(paths), silent if as_json else told)
    if as_json:
        document = {"moved": done.asked, "backup": str(done.backup), "services": [done.now.document()]}
        print_json({"schema": "cordee.service-move/1", **document})
        return
    print_status(done.now)
    same = f"same answers as before: {', '.join(done.asked)}" if done.asked else "it has no HTTP endpoint to compare"
    click.echo(f"cordee: {same}; its data of before: {done.backup}", err=True)
