"""`cordee service deploy|status|logs|open|stop|upgrade|rollback`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.core.units import format_duration
from cordee.job.terminal.options import duration, json_option
from cordee.systems.services.blueprint import ALLOCATION, KUBERNETES, TARGETS, Target
from cordee.systems.services.cli.cluster import (
    apply_release,
    cluster_options,
    place_options,
    release_logs,
    release_status,
    remove_release,
    require_none,
    roll_back_release,
)

if TYPE_CHECKING:
    from cordee.systems.services.blueprint import LoadedBlueprint
    from cordee.systems.services.deployment import ServiceStatus
    from cordee.systems.services.start import Wish

F = TypeVar("F", bound=Callable[..., Any])
# What nobody has used for so long is said.
_UNUSED_S = 3600.0


def told(now: ServiceStatus) -> None:
    """Say on standard error what a service waits for."""
    click.echo(f"cordee: {now.name} is {now.state}: {now.why}", err=True)


def silent(now: ServiceStatus) -> None:
    """Say nothing: the result is a document."""


def print_status(one: ServiceStatus) -> None:
    """Print how a service is, its endpoints below it."""
    click.echo(f"{one.name:18} {one.state:9} {one.target:8} {one.why}")
    if one.unused_s is not None and one.unused_s >= _UNUSED_S:
        click.echo(f"{'':18} nobody was connected for {format_duration(one.unused_s)}")
    for endpoint in one.endpoints if one.ready else ():
        node = f", on {one.node}" if one.target == ALLOCATION and "behind" not in endpoint else ""
        click.echo(f"{'':18} {endpoint['url']}  ({endpoint['name']}{node})")
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


_RUN_OPTIONS = (
    click.option(
        "--on",
        "cluster",
        metavar="CLUSTER",
        help="Where to run (default: CORDEE_ON, else local); for kubernetes: whose profile counts.",
    ),
    click.option(
        "--model", metavar="RUN|PATH", help="Serve the newest checkpoint of a run, or one at a path: it is exported."
    ),
    click.option("--config", metavar="DIR", help="Where the model's config.json and tokenizer are."),
    click.option("--replicas", metavar="N|N..M", help="How many servers of the model; a range follows the requests."),
    click.option(
        "--job", "jobs", multiple=True, metavar="KEY=VALUE", help="A key of the job it becomes, as need.account=a123."
    ),
    click.option(
        "--port", "ports", multiple=True, metavar="NAME=NUMBER", help="The number that an endpoint must have."
    ),
    click.option(
        "--bind",
        type=click.Choice(["loopback", "network"]),
        default="loopback",
        show_default=True,
        help="Who reaches it: its own node, or other nodes, too.",
    ),
    click.option("--idle", metavar="DURATION", help="Stop it when nobody was connected for so long."),
    click.option("--time", metavar="DURATION", help="How long its allocation lasts, under a scheduler."),
    click.option("--door", is_flag=True, help="Behind the front door: its address stays, see `cordee service door`."),
)
_OF_RUNS = ("cluster", "model", "config", "replicas", "jobs", "ports", "bind", "idle", "time", "door")


def _run_options(function: F) -> F:
    """Add what is asked for where a service is a run."""
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


def _wish(
    loaded: LoadedBlueprint, called: str, target: Target | None, parameters: dict[str, str], given: dict[str, Any]
) -> Wish:
    """Return what was asked for; a model is made ready for it.

    Args:
        called: the service's name.
        given: the values of `_run_options`.

    Raises:
        CordeeError: it cannot be had.
    """
    from cordee.job.cluster import load_cluster
    from cordee.job.terminal.options import cluster_name, flags
    from cordee.systems.services.deployment import door_port
    from cordee.systems.services.instance import ServiceFolder, services_folder
    from cordee.systems.services.models import PARAMETER, made_ready, require_free
    from cordee.systems.services.start import Wish, default_target

    place = cluster_name(given["cluster"])
    where = default_target(load_cluster(place), target, loaded.blueprint)
    ports, settings = _ports(given["ports"]), flags(None, given["jobs"])
    idle, time = (duration(given[key], f"--{key}") if given[key] else None for key in ("idle", "time"))
    door = door_port(called) if given["door"] else None
    if given["replicas"]:
        parameters["replicas"] = given["replicas"]
    if given["model"]:
        folder = ServiceFolder(services_folder() / called)
        require_free(folder)
        parameters[PARAMETER] = str(made_ready(folder, loaded, given["model"], given["config"]))
    bind = "network" if door and where == ALLOCATION else given["bind"]
    return Wish(where, place, parameters, ports, bind, idle, time, settings, door)


@click.command("deploy")
@click.argument("service")
@click.option("--name", help="The service's name (default: the blueprint's).")
@click.option(
    "--target", type=click.Choice(TARGETS), help="What it runs on (default: process here, slurm on a cluster)."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@_run_options
@click.option(
    "--wait",
    default="10min",
    show_default=True,
    metavar="DURATION",
    help="How long to wait until it is ready; 0s: not at all.",
)
@place_options
@cluster_options
@click.option("--dry-run", is_flag=True, help="Only show what would change on Kubernetes: what has drifted.")
@json_option
def deploy(
    service: str,
    name: str | None,
    target: Target | None,
    settings: tuple[str, ...],
    wait: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Start SERVICE, an entry of the catalogue, the file of a blueprint, or one that was deployed before, as a run, and wait until it is ready.

    It listens on loopback, and asks for a token or password that only you can read. On Kubernetes its manifests are applied by
    kubectl, what an earlier release has left is pruned, and Secrets are made where they are not there.

    \b
    Example:
      cordee service deploy mlflow
      cordee service deploy mlflow --target kubernetes --namespace tracking --dry-run
      cordee service deploy tensorboard --set logdir=$PWD/logs
      cordee service deploy endpoint --model last --replicas 1..4
      cordee service deploy postgresql --on alps --time 12h
    """
    from cordee.systems.services.catalogue import blueprint_again, find_blueprint
    from cordee.systems.services.deployment import deploy as deployed
    from cordee.systems.services.draft import require_name
    from cordee.systems.services.instance import ServiceFolder, services_folder

    parameters, there = pairs(settings, "--set"), ServiceFolder(services_folder() / service)
    again = target != KUBERNETES and not service.endswith(".toml") and os.sep not in service and there.exists()
    loaded = blueprint_again(there) if again else find_blueprint(service)
    name = name or (service if again else None)
    of_runs = {key: options.pop(key) for key in _OF_RUNS}
    if target == KUBERNETES:
        cluster = of_runs.pop("cluster")
        others = (name, *(value for key, value in of_runs.items() if (key, value) != ("bind", "loopback")))
        apply_release(loaded, parameters, cluster, options, others, wait, as_json)
        return
    require_none(options)
    called = require_name(name or loaded.blueprint.name)
    wish = _wish(loaded, called, target, parameters, of_runs)
    if not as_json:
        print_findings([one for one in loaded.findings if one.rule not in ("image-tag",)])
    now = deployed(loaded, called, wish, duration(wait, "--wait"), silent if as_json else told)
    if as_json:
        print_json({"schema": "cordee.service-deploy/1", "service": now.name, **now.document()})
    else:
        print_status(now)


def _at_namespace(function: F) -> F:
    """Add where a service on Kubernetes is."""
    function = click.option("--context", default="", help="Of the kubeconfig (default: the current one).")(function)
    return click.option("--namespace", default="", help="Of a service on Kubernetes.")(function)


@click.command("status")
@click.argument("service", required=False)
@_at_namespace
@json_option
def status(service: str | None, namespace: str, context: str, as_json: bool) -> None:
    """Show how your services are, and why: what readiness asked and got, why one waits, how one ended.

    Exit code 1: a SERVICE was named, and is not ready.

    \b
    Example:
      cordee service status
      cordee service status mlflow --json
      cordee service status mlflow --namespace tracking
    """
    from cordee.systems.services.deployment import all_status, status_of
    from cordee.systems.services.instance import find_service

    if namespace:
        if service is None:
            raise UsageError(
                "which service of the namespace?", given=namespace, next="name it: SERVICE --namespace ..."
            )
        release = release_status(service, namespace, context)
        if as_json:
            print_json({"schema": "cordee.service-status/1", "services": [release]})
        else:
            click.echo(f"{service:18} {release['state']:9} {'kubernetes':8} {release['why']}")
        raise click.exceptions.Exit(0 if release["ready"] else EXIT_BAD)
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
@_at_namespace
def logs(service: str, lines: int | None, namespace: str, context: str) -> None:
    """Show what a service has printed; `cordee logs -f RUN` follows it.

    \b
    Example:
      cordee service logs mlflow -n 20
    """
    from cordee.systems.services.deployment import printed
    from cordee.systems.services.instance import find_service

    found = release_logs(service, namespace, context, lines) if namespace else printed(find_service(service), lines)
    for line in found:
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
    for other in reach.endpoints[1:]:
        click.echo(f"{other['url']}  ({other['name']})")
    if reach.token_file:
        click.echo(f"cordee: its token or password is in {reach.token_file}", err=True)
    if reach.tunnel:
        click.echo(f"cordee: it is on {reach.node}; the tunnel: {shlex.join(reach.tunnel)}", err=True)
        if not only_print:
            reach.make_tunnel(lambda: click.echo("cordee: the tunnel is there; Ctrl-C ends it", err=True))


@click.command("stop")
@click.argument("service")
@click.option("--remove", is_flag=True, help="Remove its data, secrets and runs, too. Nothing brings them back.")
@_at_namespace
@json_option
def stop(service: str, remove: bool, namespace: str, context: str, as_json: bool) -> None:
    """End a service; its data, secrets and runs stay. On Kubernetes all of its release but its data is deleted.

    \b
    Example:
      cordee service stop mlflow
    """
    from cordee.systems.services.accounts import keep_use
    from cordee.systems.services.deployment import changing
    from cordee.systems.services.deployment import stop as stopped
    from cordee.systems.services.instance import find_service

    if namespace:
        remove_release(service, namespace, context, remove, as_json)
        return
    folder = find_service(service)
    with changing(folder):
        now = stopped(folder)
    if remove:
        keep_use(folder)
        folder.remove()
    if as_json:
        print_json({"schema": "cordee.service-status/1", "services": [now.document()], "removed": remove})
    else:
        print_status(now)


@click.command("upgrade")
@click.argument("service")
@click.option(
    "--to",
    "blueprint",
    metavar="SERVICE",
    help="The blueprint (default: the file or entry of the catalogue that it was deployed from).",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@click.option("--rotate", multiple=True, metavar="SECRET", help="Make a generated secret anew.")
@click.option("--model", metavar="RUN|PATH", help="Serve another model: replicas are replaced one by one.")
@click.option("--config", metavar="DIR", help="Where the model's config.json and tokenizer are.")
@click.option(
    "--wait", default="10min", show_default=True, metavar="DURATION", help="How long to wait until it is ready."
)
@json_option
def upgrade(
    service: str,
    blueprint: str | None,
    settings: tuple[str, ...],
    rotate: tuple[str, ...],
    model: str | None,
    config: str | None,
    wait: str,
    as_json: bool,
) -> None:
    """Start another revision of a service; where it does not become ready, the one before serves on, or comes back.

    The new one is ready before the old one ends, unless both would write the same data, a port has a fixed number, or --rotate is given.

    \b
    Example:
      cordee service upgrade mlflow --to mlflow-next.toml
      cordee service upgrade endpoint --rotate token
      cordee service upgrade endpoint --model last
    """
    from cordee.systems.services.catalogue import blueprint_again, find_blueprint
    from cordee.systems.services.handover import upgrade as upgraded
    from cordee.systems.services.instance import find_service
    from cordee.systems.services.models import change

    folder = find_service(service)
    if model:
        if blueprint or settings or rotate:
            raise UsageError("a model is changed by itself", given="--model", next="leave --to, --set and --rotate out")
        shown(change(folder, model, config, duration(wait, "--wait"), _said), as_json)
        return
    same = rotate or settings
    loaded = find_blueprint(blueprint) if blueprint else folder.blueprint() if same else blueprint_again(folder)
    shown(
        upgraded(folder, loaded, pairs(settings, "--set"), duration(wait, "--wait"), told, rotate=rotate),
        as_json,
    )


@click.command("rollback")
@click.argument("service")
@click.option("--to", "revision", type=int, metavar="REVISION", help="Which revision (default: the one before).")
@click.option("--model", is_flag=True, help="Only the model: the one before is served again.")
@click.option("--namespace", default="", help="Of a service on Kubernetes: its release there.")
@cluster_options
@json_option
def rollback(service: str, revision: int | None, model: bool, namespace: str, as_json: bool, **options: Any) -> None:
    """Start an earlier revision of a service again. Its data stays as it is.

    \b
    Example:
      cordee service rollback mlflow
      cordee service rollback mlflow --namespace tracking
    """
    from cordee.systems.services.handover import earlier
    from cordee.systems.services.handover import upgrade as upgraded
    from cordee.systems.services.instance import find_service
    from cordee.systems.services.models import change

    if namespace:
        roll_back_release(service, namespace, revision, options, as_json)
        return
    folder = find_service(service)
    if model:
        shown(change(folder, None, None, 600.0, _said), as_json)
        return
    shown(upgraded(folder, earlier(folder, revision), {}, 600.0, told, "rolled back"), as_json)


def _said(text: str) -> None:
    click.echo(f"cordee: {text}", err=True)


def shown(now: ServiceStatus, as_json: bool) -> None:
    """Print how a service is, as a document or in words."""
    if as_json:
        print_json({"schema": "cordee.service-status/1", "services": [now.document()]})
    else:
        print_status(now)
