"""A click group whose commands are imported when they are called, so that `cordee --help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from cordee.words import nearest

COMMANDS = {
    "init": ("cordee.cli.init", "Write a commented cordee.toml for what is in a folder."),
    "check": ("cordee.cli.check", "Validate everything and show exactly what would be submitted."),
    "run": ("cordee.cli.run", "Run a job: vet, start, sample, restart, report."),
    "vet": ("cordee.cli.vet", "Vet the nodes of this allocation, or this machine, by a protocol."),
    "record": ("cordee.cli.record", "Sample any command, for `cordee score`."),
    "runs": ("cordee.cli.runs", "List runs."),
    "show": ("cordee.cli.show", "Show one run: state, nodes, ranks, failures."),
    "logs": ("cordee.cli.logs", "Show what the ranks printed."),
    "watch": ("cordee.cli.live", "Watch a run in the terminal."),
    "serve": ("cordee.cli.serve", "Show runs as web pages, live."),
    "cancel": ("cordee.cli.cancel", "End a run; ranks that can save are asked to first."),
    "resume": ("cordee.cli.resume", "Continue a run that has ended, from its newest checkpoint."),
    "report": ("cordee.cli.report", "Render a run's report: text, JSON and one HTML file."),
    "advise": ("cordee.cli.advise", "Say why a run waits or failed, and what to change."),
    "shell": ("cordee.cli.shell", "Open a shell inside a running job, on one of its nodes."),
    "cluster": ("cordee.cli.cluster", "Show what Cordée knows of clusters."),
    "data": ("cordee.cli.data", "Data sets: survey, pack, verify, measure the loader alone."),
    "env": ("cordee.cli.env", "Container environments: resolve, explain, check, run, images."),
    "nodes": ("cordee.cli.nodes", "History of vetted nodes: offenders, rules, actions."),
    "score": ("cordee.cli.score.default", "Measure GPU utilisation, explain what limits it, suggest fixes."),
    "testing": ("cordee.cli.testing", "Test helpers: a private Slurm, synthetic runs."),
}


class LazyGroup(click.Group):
    """Looks commands up in a table: by name, the module whose `command` it is, and one line of help."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]] = COMMANDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return self._of_a_system(cmd_name)
        command: click.Command = import_module(self._table[cmd_name][0]).command
        return command

    def _of_a_system(self, name: str) -> click.Command | None:
        """Return the command that a system of another package brings; packages are asked only for a name that is not ours."""
        if self._table is not COMMANDS:
            return None
        from cordee import registry
        from cordee.parts import load

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
