"""`cordee score DIR...`, and the way to the commands below it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.group import DefaultGroup
from cordee.job.terminal.options import json_option
from cordee.systems.score.cli import COMMANDS


class _Commands(MutableMapping[str, click.Command]):
    """COMMANDS, imported when they are asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = import_module(COMMANDS[name][0]).command
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        raise TypeError("commands of `cordee score` stand in COMMANDS")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands of `cordee score` stand in COMMANDS")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class ScoreGroup(DefaultGroup):
    """A command that gives way to one of COMMANDS when its first word is that command's name."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": _Commands(), "no_args_is_help": False})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if COMMANDS:
            with formatter.section("Commands, in the place of DIR"):
                formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=ScoreGroup)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("--caps", metavar="FILE", help="TOML of what counts as full by GPU model, over what is known.")
@click.option("--rules", multiple=True, metavar="FILE", help="TOML of rules that are tried before all others.")
@click.option("--pages/--no-pages", default=True, help="Write HTML, JSON and text below DIR/report (default).")
@click.option("--against", metavar="BASELINE", help="Exit 1 when it got worse than this baseline of five runs or more.")
@click.option("--workload", default="", metavar="NAME", help="With --against: what was run, to be the baseline's.")
@click.option("--anyway", is_flag=True, help="With --against: compare also what is not comparable.")
@json_option
def command(folders: tuple[str, ...], against: str | None, workload: str, anyway: bool, **options: Any) -> None:
    """Measure how well recordings and runs used their GPUs, explain what limited them, suggest fixes.

    DIR is what `cordee record -o DIR` left, or a run: its folder or id. Several stand side by side, each held against the
    first. A folder with the name of a command is ./NAME. The score is 100 x time x breadth x depth: hardware saturation,
    not speed.

    \b
    Example:
      cordee score recording
      cordee score before after --json
      cordee score recording --rules site-rules.toml --no-pages
      cordee score recording --against baseline.json
    """
    from cordee.systems.score.cli.folders import score_folders

    if against is None:
        if workload or anyway:
            raise UsageError(
                "there is nothing to compare with",
                given="--workload" if workload else "--anyway",
                allowed="together with --against BASELINE",
                next="make a baseline with `cordee score baseline`",
            )
        score_folders(folders, **options)
        return
    from cordee.systems.score.cli.baseline_option import BaselineOption

    judging = BaselineOption(against, options["caps"], workload, anyway=anyway)
    score_folders(folders, against=judging, **options)
    sys.exit(judging.exit_code)
