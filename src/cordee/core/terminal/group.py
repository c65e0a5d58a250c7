"""Groups of commands: imported when they are called, so that `cordee --help` stays quick; or beside what the group itself does."""

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
        sections: of the commands, instead: the table of each section of the help, by its title.
        systems: whether systems of other packages bring commands, too.
        group: what other systems know the group as, to add commands to it; empty: they do not.
        elsewhere: what other tools call the commands.
    """

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
        systems: bool = False,
        group: str = "",
        elsewhere: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere or {}
        self._sections = {title: dict(part) for title, part in (sections or {"Commands": table or {}}).items()}
        self._table = {name: about for part in self._sections.values() for name, about in part.items()}
        self._systems = systems
        self._group = group

    def _whole(self) -> dict[str, tuple[str, str]]:
        """Return the table with what other systems add; they are asked only for what is not in it."""
        if self._group:
            from cordee.core import registry

            added = registry.subcommands(self._group)
            self._table.update(added)
            self._sections[list(self._sections)[-1]].update(added)
            self._group = ""
        return self._table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._whole())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table and cmd_name not in self._whole():
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
        known = name in self._table or name.startswith("-") or name in self._whole()
        if not known and self._of_a_system(name) is None:
            near = self._elsewhere.get(name) or nearest(name, self._table)
            hint = f"; did you mean {near!r}?" if near else ""
            if name.endswith((".py", ".sh")):
                hint = f"; did you mean `cordee run {name}`?"
            error = click.UsageError(f"there is no command {name!r}{hint}", ctx)
            raise error
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._whole()))
        for title, part in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in part.items()])


class DefaultGroup(click.Group):
    """A command that gives way to one of its own when its first word is that one's name."""

    allow_extra_args = False
    allow_interspersed_args = True

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            return self.commands[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)
