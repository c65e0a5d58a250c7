"""The store that a command is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cordee.systems.environments.images import ImageStore

F = TypeVar("F", bound=Callable[..., Any])


def store_options(function: F) -> F:
    """Add `--store` and `--on`."""
    for decorate in (
        click.option(
            "--on", "cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON, else local)."
        ),
        click.option(
            "--store",
            metavar="DIR",
            help="Folder of images (default: EDF_IMAGESTORE, $SCRATCH/.edf_imagestore, the profile's, else the cache).",
        ),
    ):
        function = decorate(function)
    return function


def open_store(store: str | None, cluster: str | None) -> ImageStore:
    """Return the store that the flags, the variables or the profile name."""
    from cordee.job.terminal.options import cluster_name
    from cordee.systems.environments.images import ImageStore
    from cordee.systems.environments.prepare import site_of, store_of

    kept = ImageStore(Path(store).absolute()) if store else store_of(site_of(cluster_name(cluster)))
    kept.require()
    return kept


def say(text: str) -> None:
    """Print progress on standard error."""
    click.echo(text, err=True)
