"""`cordee env`."""

from __future__ import annotations

import click

from cordee.cli.group import LazyGroup

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


@click.group(cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Container environments: resolve an EDF, explain it, check it, run commands in it, keep its images.

    \b
    Example:
      cordee env resolve env.toml
      cordee env explain env.toml
      cordee env run env.toml -- python train.py
    """
