"""The index of a data set, wherever it lies."""

from __future__ import annotations

import os

from cordee.core.errors import UsageError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.shards.index import INDEX_NAME, MAGIC, ShardIndex, open_index


def open_index_at(address: str) -> ShardIndex:
    """Open the index of a folder, of an index's own path, or of an address in a store, which is copied here first.

    Raises:
        UsageError: what lies there is something else. DataError, CorruptDataError: as `open_index`; the store does not answer.
    """
    if "://" not in address:
        _refuse_other(address)
        return open_index(address)
    from cordee.systems.data.node.read.remote import index_of

    return open_index(index_of(address), address.removesuffix(f"/{INDEX_NAME}").rstrip("/"))


def _refuse_other(path: str) -> None:
    if os.path.isdir(path) and not os.path.lexists(os.path.join(path, INDEX_NAME)):
        raise UsageError(
            f"this folder is no packed data set: it has no {INDEX_NAME}",
            given=path,
            allowed="what `cordee data pack` made; of a token set there is nothing to unpack",
            next="`cordee data pack --index-only` indexes tar shards that are there; a packing that was ended continues when repeated",
        )
    if os.path.isfile(path) and os.path.basename(path) != INDEX_NAME and not _begins_as_index(path):
        raise UsageError(
            "this file is no packed data set",
            given=path,
            allowed=f"the folder of one, or its {INDEX_NAME}",
            next="an image is read by `unsquashfs`, an archive or table is packed first: `cordee data pack`",
        )


def _begins_as_index(path: str) -> bool:
    with open(path, "rb", opener=regular) as file:
        return file.read(len(MAGIC)) == MAGIC


def read_beside(index: ShardIndex, name: str) -> bytes | None:
    """Return a small file that lies beside the shards of a data set; None: there is none."""
    from cordee.wire.stores import open_store

    store = open_store(index.root)
    stored = store.look(name)
    return store.read(name, 0, stored.bytes) if stored is not None else None
