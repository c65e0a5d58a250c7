"""`cordee env run`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import CordeeError
from cordee.job.terminal.options import cluster_name
from cordee.systems.environments.cli.options import edf_arguments

if TYPE_CHECKING:
    from cordee.systems.environments.start import StartCommand

START_SCHEMA = "cordee.env.run/1"


class InFront(click.Command):
    """Stands in front of other people's command lines: its own options end at the command, with or without `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ours, words = args[:cut], args[cut + 1 :]
        left = self._positional(ctx, ours)
        if left:
            file, options = left[0], ours[: len(ours) - len(left)]
            # Options may stand behind FILE too; with the next word that is none the command begins.
            ours = [*options, *left[1:]]
            left = self._positional(ctx, ours)
            ours, words = [*ours[: len(ours) - len(left)], "--", file], [*left, *words]
        return super().parse_args(ctx, [*ours, *words])

    def _positional(self, ctx: click.Context, words: list[str]) -> list[str]:
        found, _, _ = self.make_parser(ctx).parse_args(args=list(words))
        file, more = found.get("file"), found.get("argv")
        # What is not there is None or a mark of click's own.
        return [*([file] if isinstance(file, str) else []), *(more if isinstance(more, (list, tuple)) else [])]


@click.command("run", cls=InFront, context_settings={"allow_interspersed_args": False})
@edf_arguments
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--engine",
    metavar="ENGINE",
    help="namespace, podman or apptainer (default: the profile's, else the first that can).",
)
@click.option("--workdir", metavar="DIR", help="Begin in this folder inside (default: the EDF's, the image's, /).")
@click.option("-v", "--verbose", is_flag=True, help="Say which engine runs it, and why not another.")
@click.option("--json", "as_json", is_flag=True, help="Run nothing; print one JSON document: what would be executed.")
def command(file: str, argv: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run one command in the environment of FILE, and return its exit code.

    The command begins after `--`, or with the first word after FILE that is no option. Without one the image's own is
    run, or a shell on a terminal. Exit code 125: the environment could not be started (reason on standard error);
    126 and 127: the command cannot be executed or is not there.

    \b
    Example:
      cordee env run env.toml -- python train.py
      cordee env run ./env.toml --engine podman -- nvidia-smi
      srun cordee env run env.toml -- python train.py
    """
    from cordee.systems.environments.node.engines._base import EXIT_ENGINE

    try:
        ready = _ready(file, argv, **options)
    except CordeeError as error:
        # The codes of `cordee` are the command's own here, so that its own failures have one of theirs.
        error.exit_code = EXIT_ENGINE
        raise
    if as_json:
        _show(ready)
        return
    sys.stdout.flush()
    try:
        os.execve(ready.argv[0], ready.argv, ready.env)
    except OSError as error:
        click.echo(f"cordee: the engine {ready.choice.engine.name} cannot be started: {error}", err=True)
        raise click.exceptions.Exit(EXIT_ENGINE) from error


def _ready(file: str, argv: tuple[str, ...], cluster: str | None, verbose: bool, **options: Any) -> StartCommand:
    from cordee.systems.environments.node.choose import said
    from cordee.systems.environments.start import start

    ready = start(file, argv, cluster=cluster_name(cluster), terminal=sys.stdin.isatty(), **options)
    if ready.findings:
        from cordee.core.terminal.output import print_findings

        print_findings(list(ready.findings))
    if verbose:
        click.echo(f"cordee: engine {ready.choice.engine.name}", err=True)
        for line in said(ready.choice.passed_over):
            click.echo(f"cordee: passed over {line}", err=True)
    return ready


def _show(ready: StartCommand) -> None:
    from cordee.core.terminal.output import print_json

    passed_over = [
        {"engine": name, **missing._asdict()}
        for name, all_missing in ready.choice.passed_over
        for missing in all_missing
    ]
    document = {
        "schema": START_SCHEMA,
        "engine": ready.choice.engine.name,
        "argv": ready.argv,
        "passed_over": passed_over,
        "environment": ready.environment.document(),
    }
    print_json(document)
