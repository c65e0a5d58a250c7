"""`cordee rules`, and `cordee nodes again`."""

from __future__ import annotations

from cordee.systems.rules.cli.again import again_command
from cordee.systems.rules.cli.rules import command

__all__ = ["again_command", "command"]
