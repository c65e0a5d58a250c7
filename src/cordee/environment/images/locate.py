"""From the image that an environment names to where it lies on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from cordee.environment.document import Environment, ImageConfig, Root
from cordee.environment.images.errors import ImageError
from cordee.environment.images.reference import LocalPath, RegistryReference, read_reference
from cordee.environment.images.squash import is_squashfs, read_superblock
from cordee.environment.images.store import Store


def locate(environment: Environment, store: Store, *, pull: bool = False) -> Environment:
    """Return the environment with `root` and `config` filled in.

    Args:
        environment: its `image` is empty (the host's own root), a path, or a reference to a registry.
        store: where images that are not files or folders of their own are kept.
        pull: fetch an image that the store does not have; without it, that is an error which says how.

    Raises:
        ImageError: the image is not there, or is none.
        StoreError: the store cannot be used.
    """
    if not environment.image:
        return replace(environment, root=Root("host"), config=ImageConfig())
    source = read_reference(environment.image)
    root, config = _local(source) if isinstance(source, LocalPath) else _stored(source, store, pull)
    return replace(environment, root=root, config=config)


def _local(source: LocalPath) -> tuple[Root, ImageConfig]:
    path = Path(source.path)
    if not os.path.lexists(path):
        raise ImageError("there is no such image file or folder", given=source.given or source.path)
    if path.is_dir():
        return Root("folder", str(path)), ImageConfig()
    if is_squashfs(path) or not source.scheme:
        read_superblock(path)
        return Root("squashfs", str(path)), ImageConfig()
    raise ImageError("archives are not read yet", given=source.given)


def _stored(source: RegistryReference, store: Store, pull: bool) -> tuple[Root, ImageConfig]:
    raise ImageError("the image is not in the store", given=str(source), next=f"cordee env pull {source}")
