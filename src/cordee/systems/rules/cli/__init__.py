"""`cordee rules`."""

from cordee.systems.rules.cli.rules import command

__all__ = ["command"]
