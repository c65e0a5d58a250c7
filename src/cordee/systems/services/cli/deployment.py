"""`cordee service deploy|status|logs|open|stop|upgrade|rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import duration, json_option
from cordee.systems.services.blueprint import TARGETS, Target

if TYPE_CHECKING:
    from cordee.systems.services.deployment import ServiceStatus


def told(now: ServiceStatus) -> None:
    """Say on standard error what a service waits for."""
    click.echo(f"cordee: {now.name} is {now.state}: {now.why}", err=True)


def print_status(one: ServiceStatus) -> None:
    """Print how a service is, its endpoints below it."""
    click.echo(f"{one.name:18} {one.state:9} {one.target:8} {one.why}")
    for endpoint in one.endpoints if one.ready else ():
        click.echo(f"{'':18} {endpoint['url']}  ({endpoint['name']})")
    if one.ready and one.client_file:
        click.echo(f"{'':18} clients: . {one.client_file}")


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Return NAME=VALUE options as a dict.

    Raises:
        UsageError: one is not NAME=VALUE.
    """
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} is NAME=VALUE", given=one, allowed=f"{option} NAME=VALUE")
        found[name] = value
    return found


def _ports(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for name, value in pairs(given, "--port").items():
        if not value.isdigit() or not 1 <= int(value) <= 65535:
            raise UsageError("a port is a number from 1 to 65535", given=f"{name}={value}", allowed="--port http=20080")
        found[name] = int(value)
    return found


@click.command("deploy")
@click.argument("service")
@click.option("--name", help="The service's name (default: the blueprint's).")
@click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local).")
@click.option(
    "--target",
    type=click.Choice(TARGETS[:3]),
    help="What it runs on (default: process here, slurm on a cluster).",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@click.option(
    "--job",
    "job_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of the job it becomes, as need.account=a123.",
)
@click.option("--port", "ports", multiple=True, metavar="NAME=NUMBER", help="The number that an endpoint must have.")
@click.option(
    "--bind",
    type=click.Choice(["loopback", "network"]),
    default="loopback",
    show_default=True,
    help="Who reaches it: its own node, or other nodes, too.",
)
@click.option("--idle", metavar="DURATION", help="Stop it when nobody was connected for so long.")
@click.option("--time", "time_", metavar="DURATION", help="How long its allocation lasts, under a scheduler.")
@click.option(
    "--wait",
    default="10min",
    show_default=True,
    metavar="DURATION",
    help="How long to wait until it is ready; 0s: not at all.",
)
@json_option
def deploy(
    service: str,
    name: str | None,
    cluster: str | None,
    target: Target | None,
    settings: tuple[str, ...],
    job_settings: tuple[str, ...],
    ports: tuple[str, ...],
    bind: str,
    idle: str | None,
    time_: str | None,
    wait: str,
    as_json: bool,
) -> None:
    """Start SERVICE, an entry of the catalogue or the file of a blueprint, as a run, and wait until it is ready.

    It listens on loopback, and asks for a token or password that only you can read.

    \b
    Example:
      cordee service deploy mlflow
      cordee service deploy tensorboard --set logdir=$PWD/logs
      cordee service deploy postgresql --on alps --time 12h
    """
    from cordee.job.cluster import load_cluster
    from cordee.job.terminal.options import cluster_name, flags
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.deployment import deploy as deployed
    from cordee.systems.services.draft import require_name
    from cordee.systems.services.start import Wish, default_target

    loaded = find_blueprint(service)
    place = cluster_name(cluster)
    wish = Wish(
        default_target(load_cluster(place), target, loaded.blueprint),
        place,
        pairs(settings, "--set"),
        _ports(ports),
        bind,
        duration(idle, "--idle") if idle else None,
        duration(time_, "--time") if time_ else None,
        flags(None, job_settings),
    )
    if not as_json:
        print_findings([one for one in loaded.findings if one.rule not in ("image-tag",)])
    now = deployed(
        loaded,
        require_name(name or loaded.blueprint.name),
        wish,
        duration(wait, "--wait"),
        (lambda _: None) if as_json else told,
    )
    if as_json:
        print_json({"schema": "cordee.service-deploy/1", "service": now.name, **now.document()})
    else:
        print_status(now)


@click.command("status")
@click.argument("service", required=False)
@json_option
def status(service: str | None, as_json: bool) -> None:
    """Show how your services are, and why: what readiness asked and got, why one waits, how one ended.

    Exit code 1: a SERVICE was named, and is not ready.

    \b
    Example:
      cordee service status
      cordee service status mlflow --json
    """
    from cordee.systems.services.deployment import all_status, status_of
    from cordee.systems.services.instance import find_service

    found = [status_of(find_service(service))] if service else all_status()
    if as_json:
        print_json({"schema": "cordee.service-status/1", "services": [one.document() for one in found]})
    else:
        for one in found:
            print_status(one)
        if not found:
            click.echo("no service is deployed; `cordee service list` shows the catalogue", err=True)
    if service and not found[0].ready:
        raise click.exceptions.Exit(EXIT_BAD)


@click.command("logs")
@click.argument("service")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last N lines.")
def logs(service: str, lines: int | None) -> None:
    """Show what a service has printed; `cordee logs -f RUN` follows it.

    \b
    Example:
      cordee service logs mlflow -n 20
    """
    from cordee.systems.services.deployment import printed
    from cordee.systems.services.instance import find_service

    for line in printed(find_service(service), lines):
        click.echo(line)


@click.command("open")
@click.argument("service")
@click.option("--print", "only_print", is_flag=True, help="Print the tunnel's command instead of making it.")
@json_option
def open_(service: str, only_print: bool, as_json: bool) -> None:
    """Say how to reach a service from here: its address with its token, and the SSH tunnel where it is on another machine.

    \b
    Example:
      cordee service open jupyterlab
    """
    from cordee.systems.services.instance import find_service
    from cordee.systems.services.reach import reach_of

    reach = reach_of(find_service(service))
    if as_json:
        print_json({"schema": "cordee.service-open/1", **reach.document()})
        return
    click.echo(reach.url)
    if reach.token_file:
        click.echo(f"cordee: its token or password is in {reach.token_file}", err=True)
    if reach.tunnel:
        click.echo(f"cordee: it is on {reach.node}; the tunnel: {' '.join(reach.tunnel)}", err=True)
        if not only_print:
            raise click.exceptions.Exit(reach.make_tunnel())


@click.command("stop")
@click.argument("service")
@click.option("--remove", is_flag=True, help="Remove its data, secrets and runs, too. Nothing brings them back.")
@json_option
def stop(service: str, remove: bool, as_json: bool) -> None:
    """End a service; its data, secrets and runs stay.

    \b
    Example:
      cordee service stop mlflow
    """
    from cordee.systems.services.deployment import stop as stopped
    from cordee.systems.services.instance import find_service

    folder = find_service(service)
    now = stopped(folder)
    if remove:
        folder.remove()
    if as_json:
        print_json({"schema": "cordee.service-status/1", "services": [now.document()], "removed": remove})
    else:
        print_status(now)


@click.command("upgrade")
@click.argument("service")
@click.option("--to", "blueprint", metavar="SERVICE", help="The blueprint (default: the catalogue's of the same name).")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@click.option("--rotate", multiple=True, metavar="SECRET", help="Make a generated secret anew.")
@click.option(
    "--wait", default="10min", show_default=True, metavar="DURATION", help="How long to wait until it is ready."
)
@json_option
def upgrade(
    service: str, blueprint: str | None, settings: tuple[str, ...], rotate: tuple[str, ...], wait: str, as_json: bool
) -> None:
    """Start another revision of a service; where it does not become ready, the one before comes back.

    \b
    Example:
      cordee service upgrade mlflow --to mlflow-next.toml
      cordee service upgrade endpoint --rotate token
    """
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.deployment import upgrade as upgraded
    from cordee.systems.services.instance import find_service

    folder = find_service(service)
    same = rotate or settings
    loaded = (
        find_blueprint(blueprint)
        if blueprint
        else folder.blueprint()
        if same
        else find_blueprint(folder.record()["blueprint"])
    )
    for name in rotate:
        folder.rotate(name, loaded.blueprint)
    _shown(upgraded(folder, loaded, pairs(settings, "--set"), duration(wait, "--wait"), told), as_json)


@click.command("rollback")
@click.argument("service")
@click.option("--to", "revision", type=int, metavar="REVISION", help="Which revision (default: the one before).")
@json_option
def rollback(service: str, revision: int | None, as_json: bool) -> None:
    """Start an earlier revision of a service again. Its data stays as it is.

    \b
    Example:
      cordee service rollback mlflow
    """
    from cordee.systems.services.deployment import earlier
    from cordee.systems.services.deployment import upgrade as upgraded
    from cordee.systems.services.instance import find_service

    folder = find_service(service)
    _shown(upgraded(folder, earlier(folder, revision), {}, 600.0, told, "rolled back"), as_json)


def _shown(now: Any, as_json: bool) -> None:
    if as_json:
        print_json({"schema": "cordee.service-status/1", "services": [now.document()]})
    else:
        print_status(now)
