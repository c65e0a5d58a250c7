"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordee.core.backends import HERE
from cordee.core.errors import UsageError
from cordee.core.units import DURATION_FORMS, parse_duration

if TYPE_CHECKING:
    pass

_MOST_READ_BYTES = 1 << 20
F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")(function)


def runs_option(function: F) -> F:
    """Add `--runs DIR`."""
    return click.option(
        "--runs",
        "runs",
        metavar="DIR",
        help="Folder that holds the runs (default: CORDEE_RUNS, else the cluster's own, else ./runs).",
    )(function)


class JobCommand(click.Command):
    """A command that takes SPEC, or a script or command with arguments of its own.

    Options of Cordée stand before a script; everything behind it belongs to it, and is in the parameter `program`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from cordee.job.command_line import is_program

        at = self._first_word(args)
        program: list[str] = []
        if args[at : at + 1] == ["--"]:
            args, program = args[:at], args[at + 1 :]
            if not program:
                raise click.UsageError("there is no command behind --", ctx)
        elif at < len(args) and is_program(args[at], args[at + 1 :]):
            args, program = args[:at], args[at:]
            self._tell_misplaced(ctx, args, program)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            said = f"{error.format_message()} Options of a script stand behind the script."
            raise click.UsageError(said, ctx) from None
        ctx.params["program"] = tuple(program)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[SPEC | SCRIPT [ARGUMENTS] | -- COMMAND]"]

    def _first_word(self, args: list[str]) -> int:
        """Return where the first word is that is neither an option nor its value; the number of words without one."""
        options = self._options(flags=False)
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            at += 2 if args[at] in options else 1
        return at

    def _options(self, *, flags: bool) -> set[str]:
        """Return the names of the options that take a value; with `flags`, of all."""
        options = [one for one in self.params if isinstance(one, click.Option)]
        return {name for one in options if flags or not one.is_flag for name in one.opts}

    def _tell_misplaced(self, ctx: click.Context, args: list[str], program: list[str]) -> None:
        """Say which options of Cordée a script is given that does not name them itself."""
        scripts = [word for word in program if word.endswith((".py", ".sh")) and os.path.isfile(word)]
        words = program[: program.index("--")] if "--" in program else program
        named, valued = self._options(flags=True), self._options(flags=False)
        moved: list[str] = []
        rest: list[str] = []
        at = 0
        while at < len(words):
            name = words[at].partition("=")[0]
            is_ours = name in named and not any(_holds(script, name) for script in scripts)
            count = 2 if is_ours and words[at] in valued else 1
            (moved if is_ours else rest).extend(words[at : at + count])
            at += count
        if scripts and moved:
            right = shlex.join([*args, *moved, *rest, *program[len(words) :]])
            text = f"{shlex.join(moved)} goes to {scripts[0]}, as all that stands behind it; for Cordée:"
            click.echo(f"cordee: {text} `{ctx.command_path} {right}`", err=True)


def _holds(script: str, text: str) -> bool:
    try:
        with open(script, "rb") as file:
            return text.encode() in file.read(_MOST_READ_BYTES)
    except OSError:
        return True


def spec_arguments(function: F) -> F:
    """Add SPEC and what changes it."""
    for decorate in reversed(
        [
            click.argument("spec", default=".", required=False),
            click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local)."),
            click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes, over [need] nodes."),
            click.option(
                "--begin",
                metavar="fresh|existing|PATH",
                help="What to begin from: nothing (the default), the newest checkpoint in [checkpoint] path, or one at PATH.",
            ),
            click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set any key, as need.time=2h."),
        ]
    ):
        function = decorate(function)
    return function


def runs_folder(given: str | None) -> Path | None:
    """Return the folder for a new run: the flag or CORDEE_RUNS; None leaves it to the cluster's profile."""
    chosen = given or os.environ.get("CORDEE_RUNS")
    return Path(chosen).absolute() if chosen else None


def runs_folders(given: str | None) -> list[Path]:
    """Return the folders in which runs are looked for: the flag's, CORDEE_RUNS, else `runs` here and those of profiles."""
    from cordee.core.documents.config_paths import profile_runs

    chosen = runs_folder(given)
    return [chosen] if chosen else list(dict.fromkeys([Path("runs").absolute(), *profile_runs()]))


def recordings_folders(given: str | None) -> list[Path]:
    """Return the folders in which recordings are looked for: the flag's, else `recordings` here and those of runs."""
    from cordee.telemetry.node.recording import DEFAULT_FOLDER

    return [*([] if given else [Path(DEFAULT_FOLDER).absolute()]), *runs_folders(given)]


def cluster_name(given: str | None) -> str:
    """Return the cluster to run on: the flag, CORDEE_ON, or local."""
    return given or os.environ.get("CORDEE_ON") or HERE


def flags(nodes: int | None, settings: tuple[str, ...], begin: str | None = None) -> dict[str, Any]:
    """Return `{dotted key: value}` of the flags; values are read as TOML values, else as strings.

    A path to begin from is below the current folder.

    Raises:
        UsageError: a setting is not KEY=VALUE.
    """
    import tomllib

    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError("a setting is KEY=VALUE", given=setting, allowed="need.time=2h, restart.retries=5")
        try:
            found[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = text
    if nodes is not None:
        found["need.nodes"] = nodes
    if begin is not None:
        found["checkpoint.begin"] = (
            begin if begin in ("", "fresh", "existing") else str(Path(begin).expanduser().absolute())
        )
    return found


def duration(given: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        UsageError: it is none.
    """
    try:
        return parse_duration(given)
    except ValueError:
        raise UsageError(
            f"{option} is not a duration", given=given, allowed=DURATION_FORMS.replace("a number of seconds, or ", "")
        ) from None
