"""A squashfs file made of another one: its blocks of data are taken as they are, names are written anew, and more files come in.

Compressing a gigabyte takes many seconds, and copying what was compressed before less than one. Tables
are written as they are, which makes them larger by a few megabytes and no slower to read. The layout is that of Linux
(Documentation/filesystems/squashfs.rst, fs/squashfs/squashfs_fs.h).
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, Protocol

from cordee.machine.images.zstd import libzstd
from cordee.machine.squashfs.reader import SquashfsFault, SquashfsReader, StoredFile

_SUPERBLOCK = struct.Struct("<5I6H8Q")
_MAGIC, _NONE, _NO_TABLE = 0x73717368, 0xFFFFFFFF, (1 << 64) - 1
_METADATA_BYTES, _STORED, _DATA_STORED, _PAGE = 8192, 0x8000, 1 << 24, 4096
_ZSTD, _LEVEL = 6, 3
# Of the flags: tables that are not compressed; and a table for NFS, which is not written.
_PLAIN_TABLES, _EXPORTED = 0x1 | 0x800, 0x80
_FOLDER, _FILE, _LINK, _FIFO, _LONG_FOLDER, _LONG_FILE = 1, 2, 3, 6, 8, 9
_MOST_ENTRIES, _MOST_DISTANCE, _SHORT_LISTING = 256, 32_000, 0xFFFF


class NamedNode(Protocol):
    """What is at a name: `kind` is `folder`, `file`, `link` or `fifo`."""

    kind: str
    mode: int
    mtime: int
    target: str


class ListedFolder(NamedTuple):
    """A folder that is to be written.

    Attributes:
        node: of it.
        above: the number of the folder that it is in, in the order of all; of the root itself.
        names: of what is in it, in the order of their bytes, each with its node and, of a folder, its number.
        files: where the content of those that are files lies, by name.
    """

    node: NamedNode
    above: int
    names: Sequence[tuple[bytes, NamedNode, int]]
    files: dict[bytes, StoredFile]


class _Table(bytearray):
    """A table of metadata, in blocks that are not compressed."""

    def place(self) -> tuple[int, int]:
        """Return block and offset of what is written next."""
        return len(self) // _METADATA_BYTES * (_METADATA_BYTES + 2), len(self) % _METADATA_BYTES

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks as they stand in the file."""
        for at in range(0, len(self), _METADATA_BYTES):
            piece = self[at : at + _METADATA_BYTES]
            yield struct.pack("<H", len(piece) | _STORED) + piece


class DerivedSquashfs:
    """A squashfs file that is being written.

    Args:
        base: the one whose data are taken.
        descriptor: of its file.
        out: where to.

    Raises:
        SquashfsFault: the base has what cannot be taken over: extended attributes, or a compression other than zstd.
    """

    def __init__(self, base: SquashfsReader, descriptor: int, out: BinaryIO) -> None:
        if base.has_attributes or base.compression != "zstd":
            raise SquashfsFault("it has extended attributes, or is not compressed by zstd")
        self._base, self._out = base, out
        self._library = libzstd()
        self._at = 0
        while self._at < base.data_bytes:
            copied = os.sendfile(out.fileno(), descriptor, self._at, base.data_bytes - self._at)
            if not copied:
                raise SquashfsFault("it is cut off")
            self._at += copied
        out.seek(self._at)

    def file(self, number: int) -> NewFile:
        """Return a file that is to be written; one at a time.

        Args:
            number: negative, another for each.
        """
        return NewFile(number, self._at, self._base.block_bytes, self._block)

    def _block(self, data: bytes) -> int:
        packed, flag = data, _DATA_STORED
        if self._library is not None:
            buffer = ctypes.create_string_buffer(len(data))
            size = self._library.ZSTD_compress(buffer, len(data), data, len(data), _LEVEL)
            if not self._library.ZSTD_isError(size) and size < len(data):
                packed, flag = ctypes.string_at(buffer, size), 0
        self._out.write(packed)
        self._at += len(packed)
        return len(packed) | flag

    def finish(self, folders: Sequence[ListedFolder], owner: tuple[int, int]) -> None:
        """Write all names.

        Args:
            folders: the root first, each before those in it.
            owner: user and group of all of it.

        Raises:
            OSError: it cannot be written.
        """
        names = _Names(folders, 0 if owner[0] == owner[1] else 1)
        ids = list(dict.fromkeys(owner))
        inodes_at, flags = self._at, self._base.flags & ~_EXPORTED | _PLAIN_TABLES
        self._put(names.inodes)
        listings_at = self._at
        self._put(names.listings)
        fragments = self._base.fragments()
        fragments_at = self._indexed(fragments)
        ids_at = self._indexed(struct.pack(f"<{len(ids)}I", *ids))
        self._out.write(bytes(-self._at % _PAGE))
        self._out.seek(0)
        self._out.write(
            _SUPERBLOCK.pack(
                _MAGIC, names.count, int(time.time()), self._base.block_bytes, len(fragments) // 16, _ZSTD,
                self._base.block_bytes.bit_length() - 1, flags, len(ids), 4, 0,
                names.root, self._at, ids_at, _NO_TABLE, inodes_at, listings_at, fragments_at, _NO_TABLE,
            )
        )  # fmt: skip

    def _put(self, table: _Table) -> list[int]:
        """Write the blocks of a table, and return where each is."""
        places = []
        for block in table.blocks():
            places.append(self._at)
            self._out.write(block)
            self._at += len(block)
        return places

    def _indexed(self, content: bytes) -> int:
        """Write a table and the list of its blocks behind it; return where that is."""
        places = self._put(_Table(content))
        at = self._at
        self._out.write(struct.pack(f"<{len(places)}Q", *places))
        self._at += 8 * len(places)
        return at


class NewFile:
    """The content of a file that comes in, written piece by piece."""

    def __init__(self, number: int, start: int, block_bytes: int, block: Callable[[bytes], int]) -> None:
        self._number, self._start, self._block_bytes, self._block = number, start, block_bytes, block
        self._lengths, self._waiting, self._size = array("I"), bytearray(), 0

    def write(self, piece: bytes) -> int:
        """Take more of the content.

        Raises:
            OSError: it cannot be written.
        """
        self._waiting += piece
        self._size += len(piece)
        while len(self._waiting) >= self._block_bytes:
            self._lengths.append(self._block(bytes(self._waiting[: self._block_bytes])))
            del self._waiting[: self._block_bytes]
        return len(piece)

    def end(self) -> StoredFile:
        """Write what is left, and return where the file lies.

        Raises:
            OSError: it cannot be written.
        """
        if self._waiting:
            self._lengths.append(self._block(bytes(self._waiting)))
        return StoredFile(self._number, self._size, self._lengths, array("Q", [self._start]), _NONE, 0)


class _Names:
    """The tables of inodes and of folders' listings."""

    def __init__(self, folders: Sequence[ListedFolder], group: int) -> None:
        self.inodes, self.listings, self._group = _Table(), _Table(), group
        self._files: dict[int, tuple[int, int, int]] = {}  # of inodes with several names: block, offset, number
        self._counts: dict[int, int] = {}
        for folder in folders:
            for stored in folder.files.values():
                self._counts[stored.inode] = self._counts.get(stored.inode, 0) + 1
        self.count, self.root = len(folders), 0
        places: dict[int, tuple[int, int]] = {}
        for number in range(len(folders) - 1, -1, -1):
            places[number] = self._folder(number, folders[number], places)
        block, offset = places[0]
        self.root = block << 16 | offset

    def _folder(self, number: int, folder: ListedFolder, places: dict[int, tuple[int, int]]) -> tuple[int, int]:
        entries = []
        for name, node, below in folder.names:
            if node.kind == "folder":
                entries.append((*places[below], below + 1, _FOLDER, name))
            elif node.kind == "file":
                entries.append((*self._file(node, folder.files[name]), _FILE, name))
            else:
                words = node.target.encode(errors="surrogateescape") if node.kind == "link" else b""
                kind = _LINK if node.kind == "link" else _FIFO
                more = struct.pack("<II", 1, len(words)) + words if kind == _LINK else struct.pack("<I", 1)
                entries.append((*self._inode(kind, node, self._next(), more), kind, name))
        block, offset = self.listings.place()
        before = len(self.listings)
        self._list(entries)
        size = len(self.listings) - before + 3
        links = 2 + sum(node.kind == "folder" for _, node, _ in folder.names)
        above = folder.above + 1 if number else _NONE - 1
        if size <= _SHORT_LISTING:
            kind, more = _FOLDER, struct.pack("<IIHHI", block, links, size, offset, above)
        else:
            kind, more = _LONG_FOLDER, struct.pack("<IIIIHHI", links, size, block, above, 0, offset, _NONE)
        return self._inode(kind, folder.node, number + 1, more)[:2]

    def _list(self, entries: Sequence[tuple[int, int, int, int, bytes]]) -> None:
        """Write the listing of a folder: runs of entries whose inodes are in one block and have near numbers."""
        at = 0
        while at < len(entries):
            block, _, first = entries[at][:3]
            end = at
            while (
                end < len(entries)
                and end - at < _MOST_ENTRIES
                and entries[end][0] == block
                and abs(entries[end][2] - first) < _MOST_DISTANCE
            ):
                end += 1
            self.listings += struct.pack("<III", end - at - 1, block, first)
            for _, offset, number, kind, name in entries[at:end]:
                self.listings += struct.pack("<HhHH", offset, number - first, kind, len(name) - 1) + name
            at = end

    def _file(self, node: NamedNode, stored: StoredFile) -> tuple[int, int, int]:
        known, names = self._files.get(stored.inode), self._counts[stored.inode]
        if known is not None:
            return known
        start = stored.starts[0] if stored.lengths else 0
        if names == 1 and start < _NONE and stored.size < _NONE:
            kind, more = _FILE, struct.pack("<IIII", start, stored.fragment, stored.offset, stored.size)
        else:
            more = struct.pack("<QQQIIII", start, stored.size, 0, names, stored.fragment, stored.offset, _NONE)
            kind = _LONG_FILE
        found = self._inode(kind, node, self._next(), more + struct.pack(f"<{len(stored.lengths)}I", *stored.lengths))
        if names > 1:
            self._files[stored.inode] = found
        return found

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _inode(self, kind: int, node: NamedNode, number: int, more: bytes) -> tuple[int, int, int]:
        place = self.inodes.place()
        self.inodes += struct.pack("<4H2I", kind, node.mode & 0o7777, 0, self._group, node.mtime & _NONE, number) + more
        return (*place, number)
