"""The index of a data set, wherever it lies."""

from __future__ import annotations

from cordee.data.shards.index import INDEX_NAME, Index, open_index


def open_index_at(address: str) -> Index:
    """Open the index of a folder, of an index's own path, or of an address in a store, which is copied here first.

    Raises:
        DataError, CorruptDataError: as `open_index`; the store does not answer.
    """
    if "://" not in address:
        return open_index(address)
    from cordee.data.read.remote import index_of

    return open_index(index_of(address), address.removesuffix(f"/{INDEX_NAME}").rstrip("/"))


def read_beside(index: Index, name: str) -> bytes | None:
    """Return a small file that lies beside the shards of a data set; None: there is none."""
    from cordee.data.stores import open_store

    store = open_store(index.root)
    stored = store.look(name)
    return store.read(name, 0, stored.bytes) if stored is not None else None
