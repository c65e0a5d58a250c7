"""`cordee env images`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.environments.cli.store import open_store, say, store_options

if TYPE_CHECKING:
    from cordee.systems.environments.images.store.image_store import ImageStore
    from cordee.systems.environments.images.store.records import StoredImage

IMAGES_SCHEMA = "cordee.images/1"


@click.command("images")
@click.option("--verify", is_flag=True, help="Read every image whole and compare it with what was imported.")
@store_options
@json_option
def command(verify: bool, store: str | None, cluster: str | None, as_json: bool) -> None:
    """List the images of the store, the one used last first. With --verify, a damaged one makes the exit code 1.

    \b
    Example:
      cordee env images
      cordee env images --verify --json
    """
    kept = open_store(store, cluster)
    images = [_document(kept, image, verify) for image in kept.images()]
    if as_json:
        print_json({"schema": IMAGES_SCHEMA, "store": str(kept.folder), "images": images})
    else:
        _table(kept, images)
    if any(image["damage"] for image in images):
        sys.exit(1)


def _document(store: ImageStore, image: StoredImage, check: bool) -> dict[str, Any]:
    from cordee.machine.images.errors import ImageError
    from cordee.systems.environments.images.store.records import verify

    names = [name.name for name in store.names() if name.digest == image.digest]
    damage = None
    try:
        if check:
            verify(image)
    except ImageError as error:
        say(str(error))
        damage = error.text
    return {"names": names, **image.document(), "damage": damage}


def _table(store: ImageStore, images: list[dict[str, Any]]) -> None:
    from cordee.core.units import format_size

    say(f"{len(images)} images in {store.folder}, {format_size(sum(image['size_bytes'] for image in images))}")
    for image in images:
        number = image["digest"].partition(":")[2][:12]
        used, size = image["used_at"][:16].replace("T", " "), format_size(image["size_bytes"])
        click.echo(f"{number}  {size:>8}  used {used}  {', '.join(image['names']) or '(no name)'}")
