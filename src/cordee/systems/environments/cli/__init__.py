"""`cordee env`."""

from __future__ import annotations

import click

from cordee.core.terminal.group import LazyGroup

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "resolve": (
        "cordee.systems.environments.cli.resolve",
        "Print what an EDF comes to: one document, nothing inherited or to be expanded.",
    ),
    "explain": (
        "cordee.systems.environments.cli.explain",
        "Say which file and line, the image or the host gave every value.",
    ),
    "check": ("cordee.systems.environments.cli.check", "Name every capability, path or image that is missing here."),
    "run": ("cordee.systems.environments.cli.run", "Run one command in an environment, and return its exit code."),
    "unused": (
        "cordee.systems.environments.cli.unused",
        "Run a command, and say which packages of the image it opened no file of.",
    ),
    "connect": (
        "cordee.systems.environments.cli.connect",
        "Show how to connect to a run by ssh and editors, and make tunnels.",
    ),
    "new": ("cordee.systems.environments.cli.new", "Write an EDF of the catalogue, with a vetting protocol beside it."),
    "doctor": (
        "cordee.systems.environments.cli.doctor",
        "Try an environment on this machine: start, GPUs, a collective.",
    ),
    "images": ("cordee.systems.environments.cli.images", "List the images of the store, and verify them."),
    "pull": (
        "cordee.systems.environments.cli.pull",
        "Fetch images into the store, and pin their names to what they mean now.",
    ),
    "rm": ("cordee.systems.environments.cli.rm", "Remove images from the store."),
    "gc": (
        "cordee.systems.environments.cli.gc",
        "Clear the store of what nothing names any more, and of interrupted imports.",
    ),
    "pack": (
        "cordee.systems.environments.cli.pack",
        "Make one squashfs of a Python environment, which activates by being mounted.",
    ),
    "install-spank": (
        "cordee.systems.environments.cli.install_spank",
        "Build and install Slurm's plugin for `srun --environment`.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS, group="env")
def command() -> None:
    """Container environments: resolve an EDF, explain it, check it, run commands in it, keep its images.

    \b
    Example:
      cordee env resolve env.toml
      cordee env explain env.toml
      cordee env run env.toml -- python train.py
    """
