"""The image store: squashfs files by digest, names that are pinned to them, and nothing half-made.

```
images/sha256-<digest>/root.squashfs    what engines mount
images/sha256-<digest>/image.json       configuration, where it came from, size, digest of the file
names/<sha256 of the name>.json         a reference, pinned to the digest that it had when it was pulled
locks/sha256-<...>/                     who imports it now
tmp/<host>-<pid>-<...>/                 what is being made
```

An image appears whole, by one rename of its folder, and names are replaced by a rename: a process that is killed leaves at
most a folder in `tmp`, which `gc` clears away. Locks keep two processes from doing the same work; soundness does not hang on them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from cordee.core.documents.config_paths import cache_folder, runs_path
from cordee.core.units import utc_text
from cordee.machine.image_config import ImageConfig
from cordee.machine.images.errors import NoStoreError, StoreError
from cordee.systems.environments.images.make import no_space, out_of_quota
from cordee.systems.environments.images.store.lock import FolderLock, identity
from cordee.systems.environments.images.store.records import (
    IMAGE_SCHEMA,
    NAME_SCHEMA,
    ROOT_FILE,
    SIDECAR,
    PinnedName,
    StoredImage,
    file_digest,
    read_image,
    read_name,
)

_LEAST_DIGITS = 6
VARIABLE = "EDF_IMAGESTORE"


# What EDF_IMAGESTORE says where no image is to be kept, as at CSCS.
NO_STORE = "void"


def own_store(environ: Mapping[str, str] = os.environ, profile: str | None = None) -> ImageStore:
    """Return the store of a person; one that keeps nothing where `EDF_IMAGESTORE` is `void`.

    Raises:
        NoStoreError: `EDF_IMAGESTORE` is a relative path.
    """
    return NoStore() if environ.get(VARIABLE) == NO_STORE else ImageStore(store_folder(environ, profile))


def store_folder(environ: Mapping[str, str] = os.environ, profile: str | None = None) -> Path:
    """Return the folder of images: `EDF_IMAGESTORE`, else `$SCRATCH/.edf_imagestore`, else what the cluster's profile names
    (`[environment] store`, with `~` and variables), else one below the person's cache.

    Raises:
        NoStoreError: `EDF_IMAGESTORE` is a relative path.
    """
    given, scratch = os.path.expanduser(environ.get(VARIABLE, "")), environ.get("SCRATCH", "")
    if given and not os.path.isabs(given):
        raise NoStoreError(
            f"{VARIABLE} is a relative path, which would be another store in each folder",
            given=environ[VARIABLE],
            allowed=f"an absolute path, or {NO_STORE} for no store",
            next=f"export {VARIABLE}={os.path.abspath(given)}",
        )
    if given:
        return Path(given)
    if os.path.isabs(scratch):
        return Path(scratch) / ".edf_imagestore"
    return runs_path(profile) if profile else cache_folder(environ) / "images"


class ImageStore:
    """The images of one folder, which is made when the first is imported.

    Args:
        folder: of the store.
        elsewhere: what to do where it cannot be used, for people.
    """

    def __init__(self, folder: Path, elsewhere: str = f"name another place with {VARIABLE}") -> None:
        self.folder, self._elsewhere = folder, elsewhere
        self.images_folder = folder / "images"
        self.names_folder = folder / "names"
        self.locks_folder = folder / "locks"
        self.temporary_folder = folder / "tmp"

    def find(self, digest: str) -> StoredImage | None:
        """Return the image of that digest, if it is there and its sidecar is readable."""
        return self._read(self._place(digest))

    def images(self) -> list[StoredImage]:
        """Return all images, the one used last first."""
        found = [self._read(place) for place in self.listing(self.images_folder)]
        return sorted((image for image in found if image), key=lambda image: -image.used_at)

    def names(self) -> list[PinnedName]:
        """Return all names in order."""
        found = [self._read_name(path) for path in self.listing(self.names_folder)]
        return sorted((name for name in found if name), key=lambda pinned: pinned.name)

    def pinned(self, name: str) -> PinnedName | None:
        """Return what a name is pinned to."""
        return self._read_name(self._name_path(name))

    def pin(self, name: str, digest: str) -> PinnedName | None:
        """Pin a name to a digest and return what it was pinned to before."""
        before = self.pinned(name)
        if before is None or before.digest != digest:
            document = {"schema": NAME_SCHEMA, "name": name, "digest": digest, "pinned_at": utc_text()}
            with self.faults(), self.temporary() as folder:
                path = folder / "name.json"
                _write_whole(path, json.dumps(document).encode())
                self.names_folder.mkdir(parents=True, exist_ok=True)
                path.replace(self._name_path(name))
        return before

    def unpin(self, name: str) -> bool:
        """Forget a name; return whether it was there."""
        try:
            self._name_path(name).unlink()
            return True
        except FileNotFoundError:
            return False

    def named(self, text: str) -> list[StoredImage]:
        """Return the images that a name, or a digest or its beginning, means."""
        pinned = self.pinned(text)
        if pinned is not None:
            found = self.find(pinned.digest)
            return [found] if found else []
        digits = text.removeprefix("sha256:")
        if len(digits) < _LEAST_DIGITS or not set(digits) <= set("0123456789abcdef"):
            return []
        return [image for image in self.images() if image.digest.partition(":")[2].startswith(digits)]

    def require(self) -> None:
        """Do nothing where images can be kept.

        Raises:
            NoStoreError: they cannot.
        """

    def touch(self, image: StoredImage) -> None:
        """Note that an image is used now; a store that only others may write to is left as it is."""
        try:
            os.utime(image.path.parent / SIDECAR)
        except OSError:
            pass

    @contextmanager
    def importing(self, key: str, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
        """Hold the lock of what is imported (a digest or a name), waiting for whoever does the same now."""
        with ExitStack() as held:
            with self.faults():
                self.locks_folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(FolderLock(self.locks_folder / _file_name(key), say))
            yield

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give a folder on the store's own file system, which is gone afterwards.

        Raises:
            StoreError: the store cannot be written.
        """
        with self.faults():
            self.temporary_folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{identity()}-", dir=self.temporary_folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(
        self, made: Path, config: ImageConfig, *, origin: str, made_by: str, contents: Mapping[str, int]
    ) -> StoredImage:
        """Take a finished squashfs file, which lies in a folder of `temporary`, into the store by one rename.

        If another process was first, its image is returned.
        """
        assert config.digest is not None
        with self.faults():
            folder = made.parent / "image"
            folder.mkdir()
            root = folder / ROOT_FILE
            made.replace(root)
            document = {
                "schema": IMAGE_SCHEMA,
                "digest": config.digest,
                "config": asdict(config),
                "origin": origin,
                "imported_at": utc_text(),
                "size_bytes": root.stat().st_size,
                "file_digest": file_digest(root),
                "made_by": made_by,
                "contents": dict(contents),
            }
            _write_whole(folder / SIDECAR, json.dumps(document, indent=1).encode())
            _sync(root)
            _sync(folder)
            self._appear(folder, config.digest)
        image = self.find(config.digest)
        if image is None:
            raise StoreError("the image has gone while it was imported", given=config.digest, next="pull it again")
        return image

    def _appear(self, folder: Path, digest: str) -> None:
        place = self._place(digest)
        self.images_folder.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if self.find(digest) is None:  # what is there cannot be read, so it is replaced
                self._drop(place)
                folder.rename(place)
        _sync(self.images_folder)

    def remove(self, image: StoredImage) -> None:
        """Remove an image and all names that are pinned to it."""
        with self.faults():
            for name in self.names():
                if name.digest == image.digest:
                    self.unpin(name.name)
            self._drop(image.path.parent)

    def _drop(self, place: Path) -> None:
        """Take a folder away at once, and only then remove what is in it."""
        with self.temporary() as folder:
            try:
                place.rename(folder / "gone")
            except FileNotFoundError:
                pass

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turn what the file system says into a StoreError."""
        try:
            yield
        except OSError as error:
            _raise(error, self.folder, self._elsewhere)

    def _place(self, digest: str) -> Path:
        return self.images_folder / _file_name(digest)

    def _name_path(self, name: str) -> Path:
        return self.names_folder / f"{hashlib.sha256(name.encode()).hexdigest()}.json"

    def listing(self, folder: Path) -> list[Path]:
        """Return what lies in a folder of the store, in order; nothing when it is not there yet."""
        try:
            return sorted(folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            _raise(error, folder, self._elsewhere)

    def _read(self, place: Path) -> StoredImage | None:
        try:
            return read_image(place)
        except OSError as error:
            _raise(error, self.folder, self._elsewhere)

    def _read_name(self, path: Path) -> PinnedName | None:
        try:
            return read_name(path)
        except OSError as error:
            _raise(error, self.folder, self._elsewhere)


class NoStore(ImageStore):
    """Has no images and takes none: files and folders can be used where they lie, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def listing(self, folder: Path) -> list[Path]:
        return []

    def _read(self, place: Path) -> StoredImage | None:
        return None

    def _read_name(self, path: Path) -> PinnedName | None:
        return None

    @contextmanager
    def faults(self) -> Iterator[None]:
        self.require()
        yield

    def require(self) -> NoReturn:
        raise NoStoreError(
            "there is no store that the image could be kept in",
            given=f"{VARIABLE}={NO_STORE}",
            allowed="an image that is a squashfs file or a folder",
            next=f"unset {VARIABLE}, or set it to a folder",
        )


def stored_beside(path: Path) -> StoredImage | None:
    """Return the image of a store whose squashfs file is named by its path, for its configuration."""
    if path.name != ROOT_FILE or path.parent.parent.name != "images":
        return None
    return ImageStore(path.parent.parent.parent).find(path.parent.name.replace("-", ":", 1))


def _file_name(key: str) -> str:
    """Return a digest as the name of a file; anything else by its own digest."""
    algorithm, _, number = key.partition(":")
    if algorithm in ("sha256", "sha512") and number and all(letter in "0123456789abcdef" for letter in number):
        return f"{algorithm}-{number}"
    return f"name-{hashlib.sha256(key.encode()).hexdigest()}"


def _raise(error: OSError, folder: Path, elsewhere: str) -> NoReturn:
    if error.errno == errno.ENOSPC:
        raise no_space(folder) from None
    if error.errno == errno.EDQUOT:
        raise out_of_quota(folder) from None
    raise StoreError(
        f"the image store cannot be used: {error.strerror or error}",
        given=str(error.filename or folder),
        next=elsewhere,
    ) from None


def _write_whole(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    """Bring a file or the entries of a folder to the disk; file systems that cannot sync a folder need not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def now_of(folder: Path) -> float:
    """Return the time by the clock of the file system that a folder is on, else by this machine's; epoch seconds."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()
