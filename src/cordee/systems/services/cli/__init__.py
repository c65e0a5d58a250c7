"""`cordee service`."""

from __future__ import annotations

import click

from cordee.systems.services.cli.catalogue import check, list_, new, show
from cordee.systems.services.cli.deployment import deploy, logs, open_, rollback, status, stop, upgrade
from cordee.systems.services.cli.render import render


@click.group()
def command() -> None:
    """Services around a training, from a catalogue: tracking servers, notebooks, databases, endpoints for models.

    \b
    Example:
      cordee service list
      cordee service deploy mlflow
      cordee service status
    """


for _one in (list_, show, new, check, render, deploy, status, logs, open_, stop, upgrade, rollback):
    command.add_command(_one)
