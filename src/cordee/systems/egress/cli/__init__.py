"""`cordee egress`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument


@click.group()
def command() -> None:
    """What runs send where: one run, or all of a site against what is agreed on.

    \b
    Example:
      cordee egress show RUN
      cordee egress account --on alps
    """


@command.command("show")
@run_argument
@runs_option
@json_option
def show_command(run: str, runs: str | None, as_json: bool) -> None:
    """Show what a run has sent and received, by class and destination, and how that was counted.

    \b
    Example:
      cordee egress show train-20261123T120000Z-abcd
    """
    from cordee.core.units import format_size
    from cordee.systems.egress.views import sums_of
    from cordee.telemetry.store.reader import open_run

    folder = found(run, runs)
    sums = sums_of(open_run(folder.root).facts("egress"))
    if as_json:
        print_json({"schema": "cordee.egress-run/1", "run": folder.id, **sums.document()})
        return
    if not sums.methods:
        click.echo("nothing was counted in this run")
    for one in (*sums.classes.values(), *sums.outside()[:20]):
        name = f" ({one.name})" if one.name else ""
        place = f"  {one.address}{name}" if one.address else one.kind
        click.echo(f"{place:44} {format_size(one.sent):>10} sent {format_size(one.received):>10} received")
    if sums.unclaimed:
        click.echo(f"{'of nobody known':44} {format_size(sums.unclaimed):>10} sent")
    for method, precision in sums.methods.items():
        click.echo(f"counted by {method}: {precision}")
    for remark in sums.remarks:
        click.echo(f"warn: {remark}", err=True)


@command.command("account")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=1, show_default=True, help="Days (UTC), today among them."
)
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose account (default: CORDEE_ON, else local).")
@json_option
def account_command(days: int, cluster: str | None, as_json: bool) -> None:
    """Sum what all runs, users and days have sent to each destination. Exit code 1: more than agreed on went to one.

    \b
    Example:
      cordee egress account --days 7
    """
    from cordee.core.units import format_size
    from cordee.job.cluster import load_cluster
    from cordee.systems.egress.account import site_account

    profile = load_cluster(cluster_name(cluster))
    account = site_account(profile.egress, days)
    over = [one for one in account.destinations if one.over]
    if as_json:
        documents = [one.document() for one in account.destinations]
        left = [{"path": path, "why": why} for path, why in account.left_out.items()]
        print_json({"schema": "cordee.egress-account/1", "days": days, "destinations": documents, "left_out": left})
    else:
        for one in account.destinations:
            most = "" if one.daily is None else f" of {format_size(one.daily)} a day"
            words = f"  OVER on {', '.join(one.over)}" if one.over else ""
            people = f"{len(one.runs)} runs, {len(one.users)} users"
            click.echo(f"{one.destination:32} {format_size(one.sent):>10}{most}, {people}{words}")
        if not account.destinations:
            click.echo("nothing has left the site")
        for path, why in account.left_out.items():
            click.echo(f"warn: {path} was left out: {why}", err=True)
    if over:
        raise click.exceptions.Exit(EXIT_BAD)


@command.command("guard")
def guard_command() -> None:
    """Print the command by which root counts what jobs send and cuts them off: one file, which the site puts on its nodes.

    \b
    Example:
      cordee egress guard
    """
    from importlib.resources import files

    click.echo(files("cordee.systems.egress.node").joinpath("guard.py").read_text(), nl=False)
