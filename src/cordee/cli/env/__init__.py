"""`cordee env`."""

from __future__ import annotations

import difflib
from importlib import import_module

import click

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "resolve": (
        "cordee.cli.env.resolve",
        "Print what an EDF comes to: one document, nothing inherited or to be expanded.",
    ),
    "explain": ("cordee.cli.env.explain", "Say which file and line, the image or the host gave every value."),
    "check": ("cordee.cli.env.check", "Name every capability, path or image that is missing here."),
    "run": ("cordee.cli.env.run", "Run one command in an environment, and return its exit code."),
    "images": ("cordee.cli.env.images", "List the images of the store, and verify them."),
    "pull": ("cordee.cli.env.pull", "Fetch images into the store, and pin their names to what they mean now."),
    "rm": ("cordee.cli.env.rm", "Remove images from the store."),
    "gc": ("cordee.cli.env.gc", "Clear the store of what nothing names any more, and of interrupted imports."),
    "pack": ("cordee.cli.env.pack", "Make one squashfs of a Python environment, which activates by being mounted."),
    "install-spank": ("cordee.cli.env.install_spank", "Build and install Slurm's plugin for `srun --environment`."),
}


class _Env(click.Group):
    """Imports a command when it is called: `cordee env run` is in front of people's own programs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and near:
            raise click.UsageError(f"there is no command {args[0]!r}; did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if COMMANDS:
            with formatter.section("Commands"):
                formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Env)
def command() -> None:
    """Container environments: resolve an EDF, explain it, check it, run commands in it, keep its images.

    \b
    Example:
      cordee env resolve env.toml
      cordee env explain env.toml
      cordee env run env.toml -- python train.py
    """
