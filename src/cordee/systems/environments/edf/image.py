"""The image of an EDF: whether it can be understood, where it lies, and what it says of itself where it is on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cordee.machine.image_config import ImageConfig
from cordee.machine.images.errors import ImageError, StoreError
from cordee.machine.images.oci import OciImage, open_image
from cordee.systems.environments.images.locate import is_archive, locate
from cordee.systems.environments.images.reference import LocalPath, is_elsewhere, read_reference
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.systems.environments.node.document import Environment


def absolute_image(image: str, cwd: Path) -> str:
    """Return an image as it was given, a relative path of it from the root on.

    Raises:
        ImageError: it is neither a path nor a reference.
    """
    if is_elsewhere(image):
        return image
    source = read_reference(image, str(cwd))
    if not isinstance(source, LocalPath):
        return image
    tag = f":{source.tag}" if source.tag else ""
    return f"{source.scheme}:{source.path}{tag}" if source.scheme else source.path


def open_archive(image: str) -> OciImage | None:
    """Return an image that lies here as an archive or layout, which has to be imported before it can be used; None: it does not.

    Raises:
        ImageError: it is damaged, or for other architectures.
    """
    try:
        source = read_reference(image) if image else None
    except ImageError:
        return None
    if not isinstance(source, LocalPath) or not os.access(source.path, os.R_OK):
        return None
    path = Path(source.path)
    return open_image(path, tag=source.tag) if (path.is_file() or path.is_dir()) and is_archive(source) else None


def config_in(store: ImageStore) -> Callable[[str], ImageConfig | None]:
    """Return what says what an image says of itself, None where it is not on this machine; nothing is fetched or imported."""

    def config_of(image: str) -> ImageConfig | None:
        environment = Environment(name="", image=image)
        located = located_if_here(environment, store)
        return located.config if located is not environment else None

    return config_of


def located_if_here(environment: Environment, store: ImageStore) -> Environment:
    """Return the environment with `config` and, where its image can be used as it is, `root`; the same where it is not here."""
    try:
        archive = open_archive(environment.image)
        if archive is not None and store.find(archive.digest) is None:
            return replace(environment, config=archive.config)
        return locate(environment, store)
    except (ImageError, StoreError):
        return environment
