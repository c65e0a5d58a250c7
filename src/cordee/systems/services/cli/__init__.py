"""`cordee service`."""

from __future__ import annotations

from importlib import import_module

import click

from cordee.core.registry import subcommands
from cordee.systems.services.cli.backup import backup, move, restore
from cordee.systems.services.cli.catalogue import check, list_, new, show
from cordee.systems.services.cli.deployment import deploy, logs, open_, rollback, status, stop, upgrade
from cordee.systems.services.cli.door import door, handover
from cordee.systems.services.cli.render import render, team
from cordee.systems.services.cli.usage import usage


@click.group()
def command() -> None:
    """Services around a training, from a catalogue: tracking servers, notebooks, databases, endpoints for models.

    \b
    Example:
      cordee service list
      cordee service deploy mlflow
      cordee service status
    """


_CATALOGUE = (list_, show, new, check, render, team)
_LIFE = (deploy, status, logs, open_, stop, upgrade, rollback, backup, restore, move)
for _one in (*_CATALOGUE, *_LIFE, door, handover, usage):
    command.add_command(_one)
for _name, (_module, _) in subcommands("service").items():
    command.add_command(import_module(_module).command, _name)
