"""`cordee data verify` of token sets, on a file system or in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CorruptDataError
from cordee.systems.data.node.read.tokens.store import open_token_index
from cordee.systems.data.pack._base import CHUNK_BYTES
from cordee.systems.data.pack.tokens.target import known_about
from cordee.wire.stores import ObjectStore, open_store

if TYPE_CHECKING:
    from cordee.wire.stores import Stored


def verify_tokens(path: str) -> dict[str, Any]:
    """Read a token set as a whole and compare it with its index and its check sum.

    Args:
        path: of the set, or an `s3://` address, as `open_token_index` takes it.

    Returns:
        `tokens`, `documents`, `bytes`, and `checked`: whether there was a check sum to compare with.

    Raises:
        DataError: it cannot be read. CorruptDataError: it is not what was packed.
    """
    from isal import isal_zlib

    index = open_token_index(path)
    folder, _, name = index.path.rpartition("/")
    store = open_store(folder or ".")
    described, crc32 = store.look(name + ".json"), 0
    about = known_about(store.read(name + ".json")) if described else {}
    size = index.tokens * index.item_bytes
    for chunk in _chunks(store, store.look(name + ".bin"), name + ".bin", size):
        crc32 = isal_zlib.crc32(chunk, crc32)
    told = {"tokens": index.tokens, "documents": index.documents, "idx_crc32": index.crc32, "crc32": int(crc32)}
    for key, value in told.items() if about else ():
        if about.get(key) != value:
            raise CorruptDataError(
                "the tokens are not those that were packed",
                given=f"{index.path}: {key} {value}",
                allowed=f"{key} {about.get(key)}, as {index.path}.json says",
                next="copy the set again from where it was packed, or pack the text again",
            )
    return {"tokens": index.tokens, "documents": index.documents, "bytes": size, "checked": bool(about)}


def _chunks(store: ObjectStore, stored: Stored | None, name: str, size: int) -> Iterator[bytes]:
    """Give the bytes of one version of a file."""
    for begin in range(0, size, CHUNK_BYTES):
        yield store.read(name, begin, min(CHUNK_BYTES, size - begin), stored.version if stored else "")
