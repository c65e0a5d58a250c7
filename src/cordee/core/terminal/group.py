"""A click group whose commands are imported when they are called, so that `cordee --help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from cordee.core.words import nearest


class LazyGroup(click.Group):
    """Looks commands up in a table: by name, the module whose `command` it is, and one line of help.

    Args:
        table: of the commands.
        systems: whether systems of other packages bring commands, too.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], systems: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._systems = systems

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return self._of_a_system(cmd_name)
        command: click.Command = import_module(self._table[cmd_name][0]).command
        return command

    def _of_a_system(self, name: str) -> click.Command | None:
        """Return the command that a system of another package brings; packages are asked only for a name that is not ours."""
        if not self._systems:
            return None
        from cordee.core import registry
        from cordee.core.parts import load

        part = registry.command(name)
        command: click.Command | None = None if part is None else load(part)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._table and not name.startswith("-") and self._of_a_system(name) is None:
            near = nearest(name, self._table)
            hint = f"; did you mean {near!r}?" if near else ""
            if name.endswith((".py", ".sh")):
                hint = f"; did you mean `cordee run {name}`?"
            error = click.UsageError(f"there is no command {name!r}{hint}", ctx)
            raise error
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
