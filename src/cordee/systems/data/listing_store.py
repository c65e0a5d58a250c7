"""A bounded look into an object store: a few requests, and no long wait. The whole is `cordee data survey`."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

from cordee.core.errors import CorruptDataError
from cordee.systems.data.listing import DataLook, SeenFiles, kind_of, kind_of_file
from cordee.systems.data.node.shards.index import INDEX_NAME, header_of
from cordee.wire.stores import ObjectStore, Patience, Stored, open_store
from cordee.wire.stores.patience import VARIABLE
from cordee.wire.stores.refusals import NoSuchObject

MOST_NAMES = 1000
IMPATIENT = Patience(total_s=5.0, tries=2, connect_s=2.0, stall_s=3.0)


def look_in_store(address: str) -> DataLook:
    """Return what lies at an address, after at most five requests; `nothing` is a kind of its own.

    Raises:
        DataError, UsageError: the store refuses, or does not answer within seconds (CORDEE_STORE_TIMEOUT, if that is set).
    """
    address = address.removesuffix(f"/{INDEX_NAME}")
    store = _opened(address)
    try:
        index = store.look(INDEX_NAME)
        listed = list(islice(store.list(), MOST_NAMES))
        if index is not None:
            return _packed(store, index, listed)
        return _objects(address, listed) if listed else _one_object(address)
    except NoSuchObject as error:
        return DataLook("nothing", fault=error.text)


def _opened(address: str) -> ObjectStore:
    return open_store(address, None if os.environ.get(VARIABLE) else IMPATIENT)


def _packed(store: ObjectStore, index: Stored, listed: list[Stored]) -> DataLook:
    try:
        header = header_of(_Reading(store, index), store.path(INDEX_NAME), index.bytes)
    except CorruptDataError as error:
        return DataLook("packed", whole=False, fault=error.text)
    return DataLook(
        "packed",
        files=len(header["shards"]) + 1,
        bytes=header["bytes"],
        sized=len(header["shards"]),
        samples=header["samples"],
        identity=header["id"],
        fault=_missing(header, listed) if header["root"] == "." else "",
    )


def _missing(header: dict[str, Any], listed: list[Stored]) -> str:
    """Return which shard is not as the index says; those behind the last name that was listed are not looked at."""
    sizes = {stored.name: stored.bytes for stored in listed}
    last = listed[-1].name if len(listed) == MOST_NAMES else None
    for shard in header["shards"]:
        name, size = shard["name"], sizes.get(shard["name"])
        if size is None and (last is None or name.encode() < last.encode()):
            return f"its shard {name} is not there"
        if size is not None and size != shard["bytes"]:
            return f"its shard {name} has {size} bytes, the index says {shard['bytes']}"
    return ""


def _objects(address: str, listed: list[Stored]) -> DataLook:
    seen = SeenFiles()
    for stored in listed:
        seen.add(stored.name.rpartition("/")[2])
    size, whole = sum(stored.bytes for stored in listed), len(listed) < MOST_NAMES
    return DataLook(kind_of(address, seen), files=len(listed), bytes=size, sized=len(listed), whole=whole)


def _one_object(address: str) -> DataLook:
    """Return what an address is below which there is nothing: an object itself, or nothing."""
    folder, _, name = address.rpartition("/")
    found = _opened(folder).look(name) if not folder.endswith("/") else None
    if found is None:
        return DataLook("nothing", fault="nothing is there")
    return DataLook(kind_of_file(name), files=1, bytes=found.bytes, sized=1)


class _Reading:
    """An object read from its beginning, as a file is."""

    def __init__(self, store: ObjectStore, stored: Stored) -> None:
        self._store, self._stored, self._at = store, stored, 0

    def read(self, size: int) -> bytes:
        size = max(0, min(size, self._stored.bytes - self._at))
        data = self._store.read(self._stored.name, self._at, size, self._stored.version)
        self._at += size
        return data
