"""`cordee service usage`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.core.terminal.quantities import quantity
from cordee.job.terminal.options import json_option

if TYPE_CHECKING:
    from cordee.systems.services.accounts import Grouping, ServiceUse

_TITLES = ("hours", "GPU hours", "energy", "requests", "errors", "sent")


@click.command("usage")
@click.argument("service", required=False)
@click.option("--since", default="", metavar="YYYY-MM-DD", help="From this day on (UTC).")
@click.option("--until", default="", metavar="YYYY-MM-DD", help="Up to this day, itself in.")
@click.option(
    "--by",
    type=click.Choice(["service", "project", "owner", "day", "user"]),
    default="service",
    show_default=True,
    help="What is summed; users are those of the front door.",
)
@click.option(
    "--bill",
    metavar="COMMAND",
    help="Hand days that are over and not billed yet to COMMAND, as JSON lines on its input.",
)
@json_option
def usage(service: str | None, since: str, until: str, by: Grouping, bill: str | None, as_json: bool) -> None:
    """Show what your services have used: GPU hours and energy of their runs, requests at the front door; removed services count, too.

    \b
    Example:
      cordee service usage --by project --since 2026-11-01 --until 2026-11-30
      cordee service usage mlflow --by day --json
      cordee service usage --bill "/usr/local/bin/charge --from services"
    """
    from cordee.systems.services.accounts import summed, used_days
    from cordee.systems.services.bills import bill as billed

    for name, given in (("--since", since), ("--until", until)):
        if given and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", given):
            raise UsageError(f"{name} is a day", given=given, allowed="YYYY-MM-DD, in UTC")
    if bill is not None:
        if service or since or until:
            raise UsageError("bills are of all that was not billed", given="--bill", next="leave SERVICE and days out")
        done = billed(bill)
        if as_json:
            print_json({"schema": "cordee.service-bills/1", "bills": [one.document() for one in done]})
        else:
            click.echo(f"{len(done)} lines were taken by {bill}", err=True)
        return
    unread: dict[str, str] = {}
    sums = summed(used_days(service, since, until, unread), by)
    if as_json:
        rows = [{by: name, **use.document()} for name, use in sums.items()]
        about = {"by": by, "since": since, "until": until, "unread": unread}
        print_json({"schema": "cordee.service-usage/1", **about, "usage": rows})
        return
    for name, text in unread.items():
        click.echo(f"cordee: {name} is not counted: {text}", err=True)
    if not sums:
        click.echo("nothing was used", err=True)
        return
    click.echo(f"{by:22} " + " ".join(f"{title:>10}" for title in _TITLES))
    for name, use in sums.items():
        click.echo(f"{name or '(none)':22} " + " ".join(f"{cell:>10}" for cell in cells(use)))


def cells(use: ServiceUse) -> list[str]:
    """Return a row of the table; what was not measured is `-`."""
    energy = "-" if use.energy_joules is None else f"{use.energy_joules / 3.6e6:,.3g} kWh"
    if use.energy_joules is not None and use.measured_gpu_seconds < 0.95 * use.gpu_seconds:
        energy = f">= {energy}"
    counts = [f"{use.requests:,}", f"{use.errors:,}", quantity(use.sent_bytes, "bytes")]
    return [f"{use.seconds / 3600:,.2f}", f"{use.gpu_seconds / 3600:,.2f}", energy, *counts]
