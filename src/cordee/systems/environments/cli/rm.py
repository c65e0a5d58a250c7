"""`cordee env rm`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.environments.cli.store import open_store, store_options

REMOVED_SCHEMA = "cordee.images-removed/1"


@click.command("rm")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.option("--force", is_flag=True, help="Also one that was used within a week; a job that runs in it may lose it.")
@store_options
@json_option
def command(images: tuple[str, ...], force: bool, store: str | None, cluster: str | None, as_json: bool) -> None:
    """Remove images from the store: by name, by digest, or by the first digits of one.

    \b
    Example:
      cordee env rm ubuntu:24.04
      cordee env rm 1f0c2e3d4b5a --force
    """
    from cordee.core.units import format_size
    from cordee.systems.environments.images.store.garbage import remove

    kept = open_store(store, cluster)
    removed = [remove(kept, _name_of(image), force=force) for image in images]
    if as_json:
        print_json(
            {
                "schema": REMOVED_SCHEMA,
                "store": str(kept.folder),
                "removed": [
                    {"image": given, "path": str(each.path), "reason": each.reason, "size_bytes": each.size_bytes}
                    for given, each in zip(images, removed, strict=True)
                ],
            }
        )
        return
    for given, each in zip(images, removed, strict=True):
        click.echo(f"{given}: {each.reason}, {format_size(each.size_bytes)}")


def _name_of(given: str) -> str:
    """Return the name as the store has it; digits of a digest stay as they are."""
    from cordee.systems.environments.images import ImageError, read_reference

    digits = given.removeprefix("sha256:")
    if len(digits) >= 6 and set(digits) <= set("0123456789abcdef"):
        return digits
    try:
        return read_reference(given).name
    except ImageError:
        return given
