"""`cordee nodes`."""

from __future__ import annotations

import click

from cordee.systems.vetting.cli.nodes.act import act_command
from cordee.systems.vetting.cli.nodes.collect import collect_command
from cordee.systems.vetting.cli.nodes.keep import baseline_command, export_command, prune_command
from cordee.systems.vetting.cli.nodes.look import history_command, offenders_command
from cordee.systems.vetting.cli.nodes.rules import rules_command


@click.group()
def command() -> None:
    """Show what vettings have said of nodes over time, and act on it.

    \b
    Example:
      cordee nodes history --history /site/history
      cordee nodes offenders --history /site/history
      cordee nodes act --history /site/history
    """


for inner in (
    history_command,
    offenders_command,
    act_command,
    baseline_command,
    export_command,
    prune_command,
    collect_command,
    rules_command,
):
    command.add_command(inner)
