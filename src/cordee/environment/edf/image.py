"""The image of an EDF: whether it can be understood, where it lies, and what it says of itself where it is on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cordee.environment.document import Environment, ImageConfig
from cordee.environment.images.errors import ImageError, StoreError
from cordee.environment.images.locate import is_archive as holds_layers
from cordee.environment.images.locate import locate
from cordee.environment.images.reference import LocalPath, read_reference
from cordee.environment.images.store import Store


def absolute_image(image: str, cwd: Path) -> str:
    """Return an image as it was given, a relative path of it from the root on.

    Raises:
        ImageError: it is neither a path nor a reference.
    """
    source = read_reference(image, str(cwd))
    if not isinstance(source, LocalPath):
        return image
    tag = f":{source.tag}" if source.tag else ""
    return f"{source.scheme}:{source.path}{tag}" if source.scheme else source.path


def is_archive(image: str) -> bool:
    """Return whether an image lies here as an archive or layout, which has to be imported before it can be used."""
    try:
        source = read_reference(image) if image else None
    except ImageError:
        return False
    if not isinstance(source, LocalPath) or not os.access(source.path, os.R_OK):
        return False
    return (os.path.isfile(source.path) or os.path.isdir(source.path)) and holds_layers(source)


def config_in(store: Store, *, imports: bool = False) -> Callable[[str], ImageConfig | None]:
    """Return what says what an image says of itself, None where it is not on this machine; nothing is fetched.

    Args:
        store: of images.
        imports: an archive is imported to find out, as its use will do anyway.
    """

    def config_of(image: str) -> ImageConfig | None:
        located = located_if_here(Environment(name="", image=image), store, imports=imports)
        return located.config if located.root else None

    return config_of


def located_if_here(environment: Environment, store: Store, *, imports: bool = False) -> Environment:
    """Return the environment with `root` and `config` where its image can be used as it is, else as it was."""
    if not imports and is_archive(environment.image):
        return environment
    try:
        return locate(environment, store)
    except (ImageError, StoreError):
        return environment
