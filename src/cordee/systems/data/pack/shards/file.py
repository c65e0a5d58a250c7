"""An open shard, read by offset: a local file, or what `READERS` names by the beginning of an address."""

from __future__ import annotations

import os
from importlib import import_module

from isal.isal_zlib import crc32

from cordee.core.errors import DataError
from cordee.machine.foreign_files import regular
from cordee.systems.data.node.shards.members import Damaged
from cordee.systems.data.pack._base import CHUNK_BYTES

# By the beginning of an address: the module's `open_shard(address) -> ShardFile`.
READERS: dict[str, str] = {"s3://": "cordee.systems.data.pack.origins.objects"}
# Shards with headers before their members; all others are known by the index alone.
TAR = ".tar"


class ShardFile:
    """A local shard. Raises DataError when it is not there or cannot be read."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = regular(path)
            self.size = os.fstat(self._descriptor).st_size
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        except OSError as error:
            raise self._unreadable(error) from None

    def read(self, length: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer only at the end of the file."""
        try:
            data = os.pread(self._descriptor, length, offset)
            while len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._unreadable(error) from None
        return data

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def _unreadable(self, error: OSError) -> DataError:
        return DataError(f"the shard cannot be read: {error.strerror}", given=self.path)


def open_shard(address: str) -> ShardFile:
    """Return an open shard by its path or address."""
    for beginning, module in READERS.items():
        if address.startswith(beginning):
            found: ShardFile = import_module(module).open_shard(address)
            return found
    return ShardFile(address)


def field_crc(shard: ShardFile, offset: int, length: int) -> int:
    """Return the check sum of a part of a shard.

    Raises:
        Damaged: the shard ends before.
    """
    crc, end = 0, offset + length
    while offset < end:
        data = shard.read(min(end - offset, CHUNK_BYTES), offset)
        if not data:
            raise Damaged(offset, "the file is cut off")
        crc = crc32(data, crc)
        offset += len(data)
    return crc
