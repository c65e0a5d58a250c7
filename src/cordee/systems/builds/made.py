"""Images that were built: from an EDF back to what was made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.ports.images import GivenRecipe, ImageAtHand, ImageWorkshop
from cordee.machine.foreign_files import read_json
from cordee.systems.builds.cache import own_cache
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.lock import read_lock, write_lock
from cordee.systems.builds.recipe import LABEL, load_recipe


class MadeImage(NamedTuple):
    """An image that was built here.

    Attributes:
        given: the EDF.
        hand: the image in the store.
        digest: of its manifest.
        layout: its OCI layout.
    """

    given: GivenRecipe
    hand: ImageAtHand
    digest: str
    layout: Path


def made_image(file: str, cluster: str, workshop: ImageWorkshop, say: Callable[[str], None]) -> MadeImage:
    """Return the image that was built from an EDF and is in the person's store.

    Raises:
        CordeeError: there is none, or the recipe has changed since.
    """
    loaded = load_recipe(workshop.recipe(file, cluster))
    if workshop.is_path(loaded.given.image):
        raise BuildError(
            "an image that is a file is passed on by copying the file",
            given=loaded.given.image,
            allowed='image = "NAME" in the EDF, which keeps what is made in your store',
        )
    hand = workshop.at_hand(loaded.given.image, cluster, False, say)
    layout = own_cache().image(hand.digest)
    if not layout.is_dir():
        raise BuildError("the image was not built on this machine", given=hand.digest, next=f"cordee env build {file}")
    try:
        labels = _config(layout).get("Labels") or {}
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise BuildError(
            f"what was built cannot be read any more: {error}", given=str(layout), next=f"cordee env build {file}"
        ) from None
    if labels.get(LABEL) not in (None, f"sha256:{loaded.digest}"):
        raise BuildError(
            "the recipe has changed since the image was built", given=file, next=f"cordee env build {file}"
        )
    return MadeImage(loaded.given, hand, hand.digest, layout)


def keep_pushed(made: MadeImage, reference: str) -> None:
    """Write into the lock what a registry calls an image that was built: REGISTRY/NAME@DIGEST.

    Raises:
        CordeeError: the lock is of another image, or cannot be written.
    """
    path = load_recipe(made.given).lock_path
    lock = read_lock(path)
    if lock is None or lock.image.get("digest") != made.digest:
        raise BuildError(
            "the lock is that of another image", given=str(path), next=f"cordee env build {made.given.path}"
        )
    lock.image["pushed"] = reference
    write_lock(path, lock)


def _config(layout: Path) -> dict[str, Any]:
    blobs = layout / "blobs" / "sha256"
    manifest = read_json(layout / "index.json")["manifests"][0]["digest"].partition(":")[2]
    number = read_json(blobs / manifest)["config"]["digest"].partition(":")[2]
    found: dict[str, Any] = read_json(blobs / number).get("config") or {}
    return found
