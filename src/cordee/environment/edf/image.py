"""The image of an EDF: whether it can be understood, where it lies, and what it says of itself where it is on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cordee.environment.document import Environment, ImageConfig
from cordee.environment.images.errors import ImageError, StoreError
from cordee.environment.images.locate import locate
from cordee.environment.images.reference import ARCHIVE_SCHEMES, LocalPath, read_reference
from cordee.environment.images.store import Store


def absolute_image(image: str, cwd: Path) -> str:
    """Return an image as it was given, a relative path of it from the root on.

    Raises:
        ImageError: it is neither a path nor a reference.
    """
    source = read_reference(image, str(cwd))
    if not isinstance(source, LocalPath):
        return image
    if source.scheme is None:
        return source.path
    # What stands behind a second colon says which of several images is meant, and stays.
    rest = os.path.expanduser(image.strip().partition(":")[2].removeprefix("//"))
    return f"{source.scheme}:{os.path.normpath(cwd / rest)}"


def is_archive(image: str) -> bool:
    """Return whether an image has to be imported from an archive or layout before it can be used."""
    return image.partition(":")[0] in ARCHIVE_SCHEMES


def config_in(store: Store) -> Callable[[str], ImageConfig | None]:
    """Return what says what an image says of itself, None where it is not on this machine; nothing is fetched or imported."""

    def config_of(image: str) -> ImageConfig | None:
        located = located_if_here(Environment(name="", image=image), store)
        return located.config if located.root else None

    return config_of


def located_if_here(environment: Environment, store: Store) -> Environment:
    """Return the environment with `root` and `config` where its image can be used as it is, else as it was."""
    if is_archive(environment.image):
        return environment
    try:
        return locate(environment, store)
    except (ImageError, StoreError):
        return environment
