"""From the image that an environment names to where it lies on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cordee.core.words import nearest
from cordee.machine.foreign_files import regular
from cordee.machine.image_config import ImageConfig
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import is_layout, open_image, this_architecture
from cordee.systems.environments.images.elf import architecture_of_folder, architecture_of_squashfs
from cordee.systems.environments.images.enroot import enroot_config
from cordee.systems.environments.images.reference import LocalPath, RegistryReference, read_reference
from cordee.systems.environments.images.squash import is_squashfs, read_superblock
from cordee.systems.environments.images.store.image_store import ImageStore, stored_beside
from cordee.systems.environments.images.store.records import StoredImage
from cordee.systems.environments.node.document import ContainerRoot, Environment

_TAR_MAGIC = b"ustar"
_TAR_MAGIC_AT = 257


def locate(
    environment: Environment, store: ImageStore, *, pull: bool = False, say: Callable[[str], None] = lambda text: None
) -> Environment:
    """Return the environment with `root` and `config` filled in.

    An archive or layout is imported into the store when it is used first. A reference to a registry stays with the image
    that it was pulled as, until it is pulled again.

    Args:
        environment: its `image` is empty (the host's own root), a path, or a reference to a registry.
        store: where images that are not files or folders of their own are kept.
        pull: fetch an image that the store does not have; without it, that is an error which says how.
        say: told what is done, line by line.

    Raises:
        ImageError: the image is not there, or is none.
        StoreError: the store cannot be used.
    """
    if not environment.image:
        return replace(environment, root=ContainerRoot("host"), config=ImageConfig())
    source = read_reference(environment.image)
    if isinstance(source, RegistryReference):
        return _in_store(environment, store, _of_registry(source, store, pull, say))
    missing_path(source, environment.image)
    path = Path(source.path)
    if is_archive(source):
        return _in_store(environment, store, import_local(source, store, say))
    if path.is_dir():
        _for_this_machine(path, architecture_of_folder(path))
        return _as_it_is(environment, ContainerRoot("folder", str(path)))
    read_superblock(path)
    stored = stored_beside(path)
    if stored is not None:
        return replace(environment, root=ContainerRoot("squashfs", str(path)), config=stored.config)
    _for_this_machine(path, architecture_of_squashfs(path))
    return _as_it_is(environment, ContainerRoot("squashfs", str(path)))


def _as_it_is(environment: Environment, root: ContainerRoot) -> Environment:
    """Return the environment with a root that nothing beside it describes: the root itself may, as those of enroot do."""
    return replace(environment, root=root, config=enroot_config(root) or ImageConfig())


def _for_this_machine(path: Path, found: str | None) -> None:
    """Refuse a root whose programs this machine cannot run; machines run the 32-bit programs of their kind."""
    own = this_architecture()
    if found in (None, own) or (own, found) in (("amd64", "386"), ("arm64", "arm")):
        return
    raise ImageError(
        f"the image is not for this machine, which is {own}",
        given=f"{path}, for {found}",
        allowed=f"an image for {own}",
        next=f"pull or build it on a machine of the cluster, or with --platform linux/{own}",
    )


def import_local(source: LocalPath, store: ImageStore, say: Callable[[str], None] = lambda text: None) -> StoredImage:
    """Return the image of an archive or layout from the store, imported now if it is not there as it is now.

    Raises:
        ImageError: the image is damaged, or not for this machine.
        StoreError: the store is full or cannot be written.
    """
    # Not at once: an image that lies here is looked up in front of every task.
    from cordee.systems.environments.images.image_import import import_image

    image = import_image(open_image(Path(source.path), tag=source.tag), store, origin=source.name, say=say)
    store.pin(source.name, image.digest)
    return image


def is_archive(source: LocalPath) -> bool:
    """Return whether there are layers at a path, and not a root: as its scheme or its first bytes say."""
    path = Path(source.path)
    if path.is_dir():
        return source.scheme is not None or is_layout(path)
    if is_squashfs(path):
        return False
    if source.scheme is not None:
        return True
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(_TAR_MAGIC_AT)
            return file.read(len(_TAR_MAGIC)) == _TAR_MAGIC
    except OSError as error:
        raise ImageError(f"the image cannot be read: {error.strerror}", given=source.path) from None


def _in_store(environment: Environment, store: ImageStore, image: StoredImage) -> Environment:
    read_superblock(image.path)
    store.touch(image)
    return replace(environment, root=ContainerRoot("squashfs", str(image.path)), config=image.config)


def _of_registry(
    reference: RegistryReference, store: ImageStore, pull: bool, say: Callable[[str], None]
) -> StoredImage:
    pinned = store.pinned(reference.name)
    image = store.find(pinned.digest) if pinned else None
    if image is None and reference.digest:
        image = store.find(reference.digest)
    if image is not None:
        return image
    if pull:
        from cordee.systems.environments.images.registry.pull import pull_image

        return pull_image(reference, store, say=say).image
    store.require()
    raise ImageError(
        "the image is not in the store, nor is there a path of that name (paths begin with `/` or `./`)",
        given=f"{reference.name}; the store is {store.folder}",
        next=f"cordee env pull {reference.name}",
    )


def missing_path(source: LocalPath, given: str) -> None:
    """Refuse a path that is not there or may not be read.

    Raises:
        ImageError: so it is; both ways in which `given` can be read are named.
    """
    path = Path(source.path)
    if os.path.exists(path):
        if not os.access(path, os.R_OK):
            raise ImageError("the image may not be read by you", given=source.path)
        if not path.is_dir() and not path.is_file():
            raise ImageError("an image is a file or a folder", given=source.path)
        return
    reference = ""
    if source.scheme is None and not given.startswith(("/", ".", "~", "file:")):
        reference = f"; if an image of a registry is meant, write docker://{given}"
    near = _near(path)
    raise ImageError(
        f"there is no such image file or folder{reference}",
        given=source.path,
        allowed=f"there is {near}" if near else None,
    )


def _near(path: Path) -> str | None:
    try:
        return nearest(path.name, os.listdir(path.parent))
    except OSError:
        return None
