"""`cordee checkpoint`."""

from __future__ import annotations

import click

from cordee.core.terminal.group import LazyGroup

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "list": (
        "cordee.systems.checkpoints.cli.list",
        "List checkpoints: step, size, which run made them, whether whole.",
    ),
    "verify": ("cordee.systems.checkpoints.cli.verify", "Compare every file of checkpoints with its check sum."),
    "export": ("cordee.systems.checkpoints.cli.export", "Write the weights of a checkpoint as safetensors."),
    "publish": (
        "cordee.systems.checkpoints.cli.publish",
        "Publish weights or files for others: read-only, with licence and check sums.",
    ),
    "prune": ("cordee.systems.checkpoints.cli.prune", "Remove all checkpoints but the newest, and milestones."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Checkpoints: list them, verify them, export the weights, remove old ones.

    \b
    Example:
      cordee checkpoint list last
      cordee checkpoint verify checkpoints
      cordee checkpoint export last --to weights
      cordee checkpoint publish last --to /store/models/char-gpt --licence Apache-2.0
    """
