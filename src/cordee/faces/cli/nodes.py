"""`cordee nodes`: what vettings have said of nodes, and what the findings of runs say."""

from __future__ import annotations

from cordee.systems.rules.cli import again_command
from cordee.systems.vetting.cli.nodes import command

command.add_command(again_command)
