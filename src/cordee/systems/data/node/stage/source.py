"""What is staged: the objects of a folder, a file, a packed set or an object store, and how large they will be on the node."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from typing import Any, NamedTuple

from cordee.core.errors import DataError
from cordee.wire.stores import ObjectStore, Stored, is_remote, open_store

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
# How much more compressed files are taken to hold, where their format does not say it.
_COMPRESSED = 4


class StagingSource(NamedTuple):
    """A data set as it lies in the store.

    Attributes:
        address: as it was given.
        name: what it is called on the node.
        objects: all of it, by their names below `store`.
        is_folder: whether it becomes a folder.
        archive: whether it is one file that is unpacked on the node.
        whole: whether it is all of it, and no part.
    """

    address: str
    name: str
    store: ObjectStore
    objects: tuple[Stored, ...]
    is_folder: bool
    archive: bool
    whole: bool = True

    @property
    def bytes(self) -> int:
        """What is read."""
        return sum(one.bytes for one in self.objects)

    def staged_bytes(self, copied: bool) -> int:
        """Return what it needs on the node at most, as far as that is known before.

        Args:
            copied: whether an archive is brought there before it is unpacked, and lies beside what comes out of it.
        """
        if not self.archive:
            return self.bytes
        path, kept = self.store.path(self.objects[0].name), self.bytes if copied else 0
        if path.endswith(".zip") and not is_remote(path):
            with zipfile.ZipFile(path) as opened:
                return kept + sum(entry.file_size for entry in opened.infolist())
        return kept + self.bytes * (1 if path.endswith(".tar") else _COMPRESSED)

    def part(self, number: int, nodes: int) -> StagingSource:
        """Return what one of so many nodes gets of it: every so many-th file, by their names.

        Raises:
            DataError: it is one file, or has fewer than nodes.
        """
        if not self.is_folder or len(self.objects) < nodes:
            raise DataError(
                "there is not a file for each node",
                given=f"{self.address}: {len(self.objects)} files for {nodes} nodes",
                next="leave out part in [data], or ask for fewer nodes",
            )
        return self._replace(objects=self.objects[number::nodes], whole=False)

    def changed(self) -> bool:
        """Return whether the store has other objects now."""
        now = source_of(self.address, unpack=self.archive).objects
        return now != self.objects if self.whole else not set(self.objects) <= set(now)

    def document(self) -> dict[str, Any]:
        """Return what other nodes must know to stage the same, whatever becomes of the source meanwhile."""
        return {
            "address": self.address,
            "name": self.name,
            "store": self.store.address,
            "objects": [list(one) for one in self.objects],
            "is_folder": self.is_folder,
            "archive": self.archive,
        }

    @staticmethod
    def from_document(document: dict[str, Any]) -> StagingSource:
        """Return what another node has listed."""
        objects = tuple(Stored(*one) for one in document["objects"])
        store = open_store(document["store"])
        about = (document["is_folder"], document["archive"])
        return _checked(StagingSource(document["address"], document["name"], store, objects, *about))

    def key(self, prepare: str) -> str:
        """Return what tells this content from all other, with what is done to it on the node."""
        said = [
            self.address,
            str(self.archive),
            prepare,
            *(f"{one.name}\0{one.bytes}\0{one.version}" for one in self.objects),
        ]
        return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def source_of(address: str, *, unpack: bool) -> StagingSource:
    """Return what lies at a path or an address of a store, listed now.

    Raises:
        DataError: nothing is there, or it has names that lead out of a folder.
    """
    place = address.rstrip("/") if is_remote(address) else os.path.realpath(address)
    above, _, name = place.rpartition("/")
    if is_remote(place) or os.path.isdir(place):
        store = open_store(place)
        objects = tuple(store.list())
        if objects or not is_remote(place):
            return _checked(StagingSource(address, name, store, objects, True, False))
    if above.endswith(":/"):
        raise DataError("nothing is there", given=address, next="correct the address")
    store = open_store(above or "/")
    one = store.look(name)
    if one is None:
        raise DataError("nothing is there", given=address, next="correct the path, or the address")
    beside = [found for found in (store.look(f"{name}.idx"),) if found is not None]
    ending = next((ending for ending in _ARCHIVES if name.lower().endswith(ending)), "")
    archive = unpack and not beside and len(name) > len(ending) > 0
    called = name[: -len(ending)] if archive else name
    return _checked(StagingSource(address, called, store, (one, *beside), archive, archive))


def _checked(source: StagingSource) -> StagingSource:
    for one in source.objects:
        if one.name.startswith("/") or ".." in one.name.split("/"):
            raise DataError("a name in it leads out of the folder", given=one.name, next="rename it at the source")
    return source


def unpack(path: str, folder: str) -> None:
    """Unpack an archive into a folder; links and names that lead out of it are refused.

    Raises:
        DataError: it is damaged, or leads out of the folder.
        OSError: the folder cannot be written.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as opened:
                opened.extractall(folder)
        elif not hasattr(tarfile, "data_filter"):
            raise DataError(
                "this Python cannot unpack archives safely", given=path, allowed="3.9.17, 3.10.12, 3.11.4 or newer"
            )
        else:
            with tarfile.open(path) as opened_tar:
                opened_tar.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(
            f"the archive cannot be unpacked: {error}", given=path, next="look whether it is whole"
        ) from error
