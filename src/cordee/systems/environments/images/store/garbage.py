"""What can go from the store: images that nothing names any more, unused ones, and what interrupted imports left."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cordee.core.units import format_duration
from cordee.core.words import alike
from cordee.machine.images.errors import ImageError
from cordee.systems.environments.images.store.image_store import ImageStore, now_of
from cordee.systems.environments.images.store.lock import is_gone, owner_of, release
from cordee.systems.environments.images.store.records import StoredImage
from cordee.systems.environments.images.store.sizes import folder_bytes, last_change

# An image that was located within this time may be in use by a job on any node: few sites let one run for longer.
IN_USE_S = 7 * 86400.0
# What another machine makes is left alone for so long; its processes cannot be asked.
_FOREIGN_S = 2 * 86400.0

_IDENTITY = re.compile(r".+-(?:[0-9a-f]{8}|0)-\d+-\d+-\d+")
_KEY = re.compile(r"(?:sha256|sha512|name)-[0-9a-f]+")


@dataclass(frozen=True)
class Removal:
    """One thing that goes: its path, why, and what it frees; `owner` is who has left it."""

    path: Path
    reason: str
    size_bytes: int
    image: StoredImage | None = None
    owner: str = ""


def removable(store: ImageStore, *, older_than_s: float | None = None, in_use_s: float = IN_USE_S) -> list[Removal]:
    """Return what can be removed; nothing is changed.

    Args:
        older_than_s: images that have names go too when they were not used for so long; None: they stay.
        in_use_s: what was used within this time stays, whatever else holds.

    Raises:
        StoreError: the store cannot be read.
    """
    named = {name.digest for name in store.names()}
    now = now_of(store.folder)
    found = []
    for image in store.images():
        idle_s = now - image.used_at
        if idle_s < in_use_s:
            continue
        if older_than_s is not None and idle_s >= older_than_s:
            found.append(Removal(image.path.parent, f"not used for {format_duration(idle_s)}", image.size_bytes, image))
        elif image.digest not in named:
            found.append(Removal(image.path.parent, "no name means it any more", image.size_bytes, image))
    return found + _leftovers(store, now)


def collect(store: ImageStore, removals: list[Removal]) -> None:
    """Remove what `removable` has found.

    Raises:
        StoreError: the store cannot be written.
    """
    for removal in removals:
        if removal.image is not None:
            store.remove(removal.image)
        elif removal.path.parent == store.locks_folder and not removal.path.name.startswith("."):
            release(removal.path, removal.owner)
        else:
            shutil.rmtree(removal.path, ignore_errors=True)


def remove(store: ImageStore, text: str, *, force: bool = False, in_use_s: float = IN_USE_S) -> Removal:
    """Remove a name, and the image with it when it has no other; a digest, or its beginning, means the image and its names.

    Raises:
        ImageError: there is none, several begin so, or it was used not long ago and `force` is not given.
        StoreError: the store cannot be written.
    """
    found = store.named(text)
    if len(found) != 1:
        known = [name.name for name in store.names()]
        near = alike(text, known) or known
        raise ImageError(
            "several images begin so" if found else "there is no such image in the store",
            given=f"{text}; the store is {store.folder}",
            allowed=[image.digest for image in found] or near or None,
            next="cordee env images",
        )
    image = found[0]
    names = [name.name for name in store.names() if name.digest == image.digest]
    if text in names and len(names) > 1:
        store.unpin(text)
        return Removal(image.path.parent, "the name alone: the image has others", 0)
    idle_s = now_of(store.folder) - image.used_at
    if idle_s < in_use_s and not force:
        raise ImageError(
            f"the image was used {format_duration(max(idle_s, 0))} ago, so a job may run in it",
            given=f"{text} ({image.digest[:19]}...)",
            next="add --force, when none does",
        )
    store.remove(image)
    return Removal(image.path.parent, "removed", image.size_bytes, image)


def _leftovers(store: ImageStore, now: float) -> list[Removal]:
    """Return what processes have left that are gone: folders of imports, locks, images that cannot be read.

    Other tools may keep their images in the same folder, so only what is named as ours is looked at.
    """
    found = []
    for path in [*store.listing(store.temporary_folder), *store.listing(store.locks_folder)]:
        # A folder that is being made is called by its maker, with letters of its own at the end; a lock holds its owner.
        made = path.parent == store.temporary_folder or path.name.startswith(".")
        owner = path.name.removeprefix(".").rpartition("-")[0] if made else owner_of(path)
        ours = _IDENTITY.fullmatch(owner) if made else _KEY.fullmatch(path.name)
        if ours and (is_gone(owner) or now - last_change(path) > _FOREIGN_S):
            found.append(Removal(path, "left by a process that was interrupted", folder_bytes(path), owner=owner))
    known = {image.path.parent for image in store.images()}
    for path in store.listing(store.images_folder):
        if path not in known and _KEY.fullmatch(path.name) and now - last_change(path) > _FOREIGN_S:
            found.append(Removal(path, "it cannot be read as an image", folder_bytes(path)))
    return found
