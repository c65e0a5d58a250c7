"""Images from archives and layouts into the store."""

from __future__ import annotations

from collections.abc import Callable

from cordee.machine.images.oci import OciImage
from cordee.systems.environments.images.grown import Stem, grow
from cordee.systems.environments.images.make import tool_version
from cordee.systems.environments.images.merged import merge
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.systems.environments.images.store.records import StoredImage


def import_image(
    image: OciImage,
    store: ImageStore,
    *,
    origin: str,
    say: Callable[[str], None] = lambda text: None,
    stem: Stem | None = None,
) -> StoredImage:
    """Return the image from the store, imported now if it is not there; whoever imports it at the same time is waited for.

    Args:
        origin: where it comes from, for people.
        say: told what is done, line by line.
        stem: layers that other images begin with, too.

    Raises:
        ImageError: the image is damaged or not to be trusted.
        StoreError: the store is full or cannot be written.
    """
    found = store.find(image.digest)
    if found is not None:
        return found
    with store.importing(image.digest, say):
        found = store.find(image.digest)
        if found is not None:
            return found
        with store.temporary() as folder, store.faults():
            made = folder / "made.squashfs"
            merged = merge(image, made, say) if stem is None else grow(image, stem, made, say)
            for line in merged.dropped():
                say(line)
            return store.keep(made, image.config, origin=origin, made_by=tool_version(), contents=merged.document())
