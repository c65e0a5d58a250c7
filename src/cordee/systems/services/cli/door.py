"""`cordee service door start|stop|status|unit`, and `cordee service handover`."""

from __future__ import annotations

import getpass
import re
import socket

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import duration, json_option
from cordee.systems.services.cli.deployment import shown, silent, told


@click.group("door")
def door() -> None:
    """The front door: one address for each service that was deployed with --door, while the nodes behind it change.

    \b
    Example:
      cordee service door start
      cordee service deploy mlflow --door
      cordee service door status
    """


@door.command("start")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option("--certificate", metavar="FILE", help="The certificate for TLS; what is no loopback needs one.")
@click.option("--key", metavar="FILE", help="The key of the certificate.")
@click.option(
    "--user-header",
    metavar="NAME",
    help="In which the centre's proxy in front, which shows the door's secret, names who asks, as X-Forwarded-User.",
)
@json_option
def start(address: str, certificate: str | None, key: str | None, user_header: str | None, as_json: bool) -> None:
    """Open the door on this machine. It stays open until it is stopped, or this machine ends.

    \b
    Example:
      cordee service door start
      cordee service door start --address $(hostname) --certificate host.pem --key host.key
      cordee service door start --user-header X-Forwarded-User
    """
    from cordee.backends.slurm.node.addresses import reachable_address
    from cordee.systems.services.door._base import PROXY_HEADER
    from cordee.systems.services.door.folder import DoorFolder

    if bool(certificate) != bool(key):
        raise UsageError("a certificate and its key belong together", given=certificate or key, allowed="both, or none")
    try:
        own = address == socket.gethostname()
        at = reachable_address(None) if own else socket.gethostbyname(address)
    except OSError:
        raise UsageError(
            "is no address of this machine", given=address, allowed="an address or a host's name"
        ) from None
    if not at.startswith("127.") and not certificate:
        raise UsageError(
            "passwords would cross the network in the open",
            given=address,
            allowed="a loopback address, or --certificate and --key",
            next="give both, or reach it by an SSH tunnel",
        )
    if user_header and not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,60}", user_header):
        raise UsageError("is no name of a header", given=user_header, allowed="a name such as X-Forwarded-User")
    settings = {"address": at, "certificate": _file(certificate), "key": _file(key), "kind": "nginx"}
    if user_header:
        settings["user_header"] = user_header
    folder = DoorFolder()
    _tell(folder, folder.start(settings), as_json)
    if user_header:
        click.echo(f"cordee: the proxy in front sends {PROXY_HEADER} with what is in {folder.proxy_secret()}", err=True)


def _file(given: str | None) -> str:
    from pathlib import Path

    if given is None:
        return ""
    path = Path(given).absolute()
    if not path.is_file():
        raise UsageError("there is no such file", given=str(path))
    return str(path)


@door.command("stop")
def stop() -> None:
    """Close the door; services go on.

    \b
    Example:
      cordee service door stop
    """
    from cordee.systems.services.door.folder import DoorFolder

    if not DoorFolder().stop():
        click.echo("cordee: no door was open", err=True)


@door.command("status")
@json_option
def status(as_json: bool) -> None:
    """Show where the door leads. Exit code 1: it is closed.

    \b
    Example:
      cordee service door status
    """
    from cordee.systems.services.door.folder import DoorFolder

    now = DoorFolder().keeper()
    _tell(DoorFolder(), now, as_json)
    if not now:
        raise click.exceptions.Exit(EXIT_BAD)


@door.command("unit")
def unit() -> None:
    """Print a user unit of systemd that opens the door: in ~/.config/systemd/user, enabled, with `loginctl enable-linger`, it outlives
    logout and reboot.

    \b
    Example:
      cordee service door unit
    """
    from cordee.systems.services.door.folder import DoorFolder

    folder = DoorFolder()
    if not folder.settings():
        raise UsageError("the door was never opened", next="`cordee service door start` once, which keeps its settings")
    click.echo(folder.unit(getpass.getuser()), nl=False)


def _tell(folder, now, as_json: bool) -> None:  # type: ignore[no-untyped-def]
    from cordee.systems.services.door.requests import requests_of

    routes = [
        {
            "service": name,
            "url": folder.url(one["port"]),
            "target": one["target"] or None,
            **requests_of(name, folder.root),
        }
        for name, one in now.get("routes", {}).items()
    ]
    if as_json:
        print_json({"schema": "cordee.service-door/1", "open": bool(now), "pid": now.get("pid"), "routes": routes})
        return
    click.echo(f"the door is {'open' if now else 'closed: `cordee service door start`'}", err=True)
    for one in routes:
        counts = f"{one.get('requests', 0):.0f} requests, {one.get('errors', 0):.0f} errors"
        click.echo(f"{one['service']:18} {one['url']:28} -> {one['target'] or 'requests wait':22} {counts}")


@click.command("handover")
@click.argument("service")
@click.option("--wait", default="10min", show_default=True, metavar="DURATION", help="How long the next run may take.")
@click.option(
    "--drain", default="30s", show_default=True, metavar="DURATION", help="How long what is under way may take."
)
@json_option
def handover(service: str, wait: str, drain: str, as_json: bool) -> None:
    """Have the next run of a service take the place of the one that runs, behind the front door, without a request lost.

    Before an allocation ends, the door does this by itself.

    \b
    Example:
      cordee service handover mlflow --drain 2min
    """
    from cordee.systems.services.handover import hand_over
    from cordee.systems.services.instance import find_service

    now = hand_over(
        find_service(service), duration(wait, "--wait"), duration(drain, "--drain"), silent if as_json else told
    )
    shown(now, as_json)
