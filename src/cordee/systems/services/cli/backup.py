"""`cordee service backup|restore|move`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.core.units import format_size
from cordee.job.terminal.options import duration, json_option
from cordee.systems.services.blueprint import TARGETS, Blueprint, Target
from cordee.systems.services.cli.deployment import print_status, shown, silent, told

_passphrase_option = click.option(
    "--passphrase-file",
    metavar="FILE",
    help="What encrypts the secrets (default: ~/.config/cordee/backup-passphrase, made by the first backup).",
)


def _file(given: str | None) -> Path | None:
    return Path(given) if given else None


@click.command("backup")
@click.argument("service")
@click.option("-o", "--output", metavar="FILE", help="The file (default: one below the service's folder).")
@_passphrase_option
@click.option("--no-secrets", is_flag=True, help="Leave its secrets out.")
@json_option
def backup(service: str, output: str | None, passphrase_file: str | None, no_secrets: bool, as_json: bool) -> None:
    """Write a service's blueprint, volumes and secrets, these encrypted, into one file, mode 0600. A service that runs is stopped meanwhile.

    \b
    Example:
      cordee service backup mlflow -o mlflow.tar
      cordee service backup mlflow -o mlflow.tar --passphrase-file ~/passphrase
    """
    from cordee.systems.services.backup import back_up
    from cordee.systems.services.instance import find_service
    from cordee.systems.services.sealing import own_passphrase_file, passphrase_of

    if no_secrets and passphrase_file:
        raise UsageError("without secrets there is nothing to encrypt", given="--no-secrets and --passphrase-file")
    path, folder = Path(output).absolute() if output else None, find_service(service)
    passphrase = None if no_secrets else passphrase_of(_file(passphrase_file), make=True)
    written = back_up(folder, path, passphrase, silent if as_json else told)
    if as_json:
        print_json({"schema": "cordee.service-backup/1", **written._asdict(), "path": str(written.path)})
        return
    held = f"its secrets by the passphrase in {passphrase_file or own_passphrase_file()}"
    about = "without its secrets" if no_secrets else held
    click.echo(f"{written.path}: {format_size(written.bytes)}, {written.files} files; {about}")
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
@_passphrase_option
@click.option(
    "--secrets",
    metavar="DIR|new",
    help="A folder with a file for each secret, in place of the backup's; new: made anew.",
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
    passphrase_file: str | None,
    secrets: str | None,
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
    from cordee.systems.services.sealing import passphrase_of
    from cordee.systems.services.start import Wish, default_target

    place = cluster_name(cluster)
    profile = load_cluster(place)

    def changed(wish: Wish, blueprint: Blueprint) -> Wish:
        same = wish.target if place == wish.cluster else None
        return replace(wish, cluster=place, target=default_target(profile, target or same, blueprint))

    wait_s = None if no_start else duration(wait, "--wait")
    wanted = require_name(name) if name else None
    tell = silent if as_json else told
    key = partial(passphrase_of, _file(passphrase_file))
    now = restored(Path(source), wanted, changed, again, wait_s, tell, key, secrets)
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
