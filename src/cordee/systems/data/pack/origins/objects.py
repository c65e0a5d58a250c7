"""Objects of a store: packed from a prefix, and the place where whole files of a data set go."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry
from cordee.systems.data.pack._base import CHUNK_BYTES, PackTarget, SampleOrigin
from cordee.systems.data.pack.shards.file import ShardFile
from cordee.wire.stores import ObjectStore, Stored, open_store

# Small objects are asked for ahead of their turn, so that an answer's delay is waited for once for many of them.
_SMALL_BYTES = 1 << 20
_AHEAD = 16
_AT_ONCE = 32
# A worker that leaves out no more than this from one object to the next goes forward.
_GAP = 4
_PROBES = 3


class ObjectsOrigin(SampleOrigin):
    """Every object below an address is an entry; one that is replaced after it was listed is not packed."""

    threads = True

    def __init__(self, address: str) -> None:
        self._store = open_store(address)
        self.name = self._store.address.rpartition("/")[2]
        self._objects: list[Stored] = []
        self._compares = False
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._worker = threading.local()

    def listing(self) -> Listing:
        entries: list[PackedEntry] = []
        seen = hashlib.sha256()
        for stored in self._store.list():
            name = os.fsencode(stored.name)
            entries.append(PackedEntry(name, stored.bytes, offset=len(entries)))
            self._objects.append(stored)
            seen.update(b"%d %s %s\0" % (stored.bytes, stored.version.encode(), name))
        if not entries:
            raise DataError("there are no objects", given=self._store.address, next="check the bucket and the prefix")
        self._compares = self._tells_md5()
        return Listing(entries=entries, fingerprint=seen.hexdigest())

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        stored, came = self._objects[entry.offset], hashlib.md5(usedforsecurity=False)
        for piece in self._pieces(entry):
            came.update(piece)
            yield piece
        compared = self._compares and stored.bytes
        if compared and self._store.agrees(stored, came.digest()) is False and not self._store.encrypts(stored.name):
            raise CorruptDataError(
                "what came from the store is not what it says that it holds",
                given=f"{self._store.path(stored.name)}: MD5 {came.hexdigest()} came, its ETag is {stored.version}",
                next="pack again; if it repeats, upload it again, or ask those who run the store",
            )

    def _pieces(self, entry: PackedEntry) -> Iterator[bytes]:
        if entry.length <= _SMALL_BYTES:
            yield self._ahead(entry.offset).result()
            return
        for start in range(0, entry.length, CHUNK_BYTES):
            yield self._read(entry.offset, start, min(CHUNK_BYTES, entry.length - start))

    def _tells_md5(self) -> bool:
        """Return whether the store's ETags are MD5 sums, by some of the smallest objects; one alone is taken at its word."""
        there = self._objects
        told = sorted(
            (one.bytes, at) for at, one in enumerate(there) if one.bytes and self._store.agrees(one, b"") is not None
        )[:_PROBES]
        came = [hashlib.md5(self._read(at, 0, size), usedforsecurity=False).digest() for size, at in told]
        seen = [self._store.agrees(there[at], md5) for (_, at), md5 in zip(told, came, strict=True)]
        if len(seen) > 1 and not any(seen):
            print(
                f"cordee: ETags of {self._store.address} are no MD5 sums: what comes is not compared", file=sys.stderr
            )
            return False
        return bool(seen)

    def _ahead(self, at: int) -> Future[bytes]:
        """Return the small object number `at`, and ask for those behind it while a worker goes from one to the next.

        Each worker has its own: they pack different shards.
        """
        if not hasattr(self._worker, "asked"):
            self._worker.asked, self._worker.last = {}, at
        asked: dict[int, Future[bytes]] = self._worker.asked
        forward = 0 < at - self._worker.last <= _GAP
        self._worker.last = at
        for number in [number for number in asked if not at <= number <= at + _AHEAD]:
            asked.pop(number).cancel()
        for number in range(at, min(at + 1 + (_AHEAD if forward else 0), len(self._objects))):
            if number not in asked and self._objects[number].bytes <= _SMALL_BYTES:
                asked[number] = self._pool.submit(self._read, number, 0, self._objects[number].bytes)
        return asked.pop(at)

    def _read(self, number: int, start: int, length: int) -> bytes:
        stored = self._objects[number]
        return self._store.read(stored.name, start, length, stored.version)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class ObjectsPlace(PackTarget):
    """A prefix of a store that a data set is written to, file by file; each appears whole or not at all."""

    threads = True

    def __init__(self, address: str) -> None:
        self._store: ObjectStore = open_store(address)

    def sizes(self) -> dict[str, int]:
        return {stored.name: stored.bytes for stored in self._store.list()}

    def take(self, partial: str, name: str) -> None:
        with open(partial, "rb") as file:
            self._store.write(name, file)
        os.unlink(partial)

    def remove(self, name: str) -> None:
        self._store.delete(name)


def open_origin(address: str, options: dict[str, Any]) -> SampleOrigin:
    """Return the origin of `s3://bucket/prefix`."""
    return ObjectsOrigin(address)


def open_place(address: str) -> PackTarget:
    """Return the place of `s3://bucket/prefix`."""
    return ObjectsPlace(address)


def open_shard(address: str) -> ShardFile:
    """Return a shard in a store, read ahead by some megabytes."""
    return _StoredShard(address)


class _StoredShard(ShardFile):
    def __init__(self, address: str) -> None:
        self.path = address
        folder, _, self._name = address.rpartition("/")
        self._store = open_store(folder)
        stored = self._store.look(self._name)
        if stored is None:
            raise DataError("the shard is not there", given=address)
        self.size, self._version = stored.bytes, stored.version
        self._ahead, self._begin = b"", 0

    def read(self, length: int, offset: int) -> bytes:
        at = offset - self._begin
        if at < 0 or at + length > len(self._ahead):
            size = max(0, min(max(length, CHUNK_BYTES), self.size - offset))
            self._ahead, self._begin = self._store.read(self._name, offset, size, self._version), offset
            at = 0
        return self._ahead[at : at + length]

    def close(self) -> None:
        self._ahead = b""
