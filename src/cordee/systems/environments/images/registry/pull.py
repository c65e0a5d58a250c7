"""Images from registries into the store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cordee.systems.environments.images.image_import import import_image
from cordee.systems.environments.images.reference import RegistryReference
from cordee.systems.environments.images.registry.client import RegistryQuestion, ask
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.systems.environments.images.store.records import StoredImage


@dataclass(frozen=True)
class Pulled:
    """What a pull has done.

    Attributes:
        image: what the reference means now.
        before: the digest that it meant before; None: it was not in the store.
        fetched: whether anything was downloaded.
    """

    image: StoredImage
    before: str | None
    fetched: bool

    @property
    def changed(self) -> bool:
        """Whether the reference means another image than before."""
        return self.before is not None and self.before != self.image.digest


def pull_image(
    reference: RegistryReference,
    store: ImageStore,
    *,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
    pause: Callable[[float], None] = time.sleep,
) -> Pulled:
    """Ask the registry what a reference means now, fetch it where the store does not have it, and pin the name to it.

    Args:
        say: told what is done, line by line.
        pause: called with the seconds to wait before another try.

    Raises:
        ImageError: the registry does not have it or does not give it, or it is damaged.
        StoreError: the store is full or cannot be written.
    """
    before = store.pinned(reference.name)
    with store.importing(f"pull {reference.name}", say), store.temporary() as folder:
        registry = ask(RegistryQuestion(reference, folder, say, environ, pause))
        digest = registry.digest()
        found = store.find(digest) if digest else None
        fetched = found is None
        if found is None:
            with store.faults():
                image = registry.fetch()
            found = import_image(image, store, origin=reference.name, say=say)
        store.pin(reference.name, found.digest)
        store.touch(found)
    return Pulled(found, before.digest if before else None, fetched)
