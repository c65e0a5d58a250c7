"""Squashfs 4.0, read by whoever may read the file: nothing is mounted or unpacked, and nothing in it is trusted.

The layout is that of Linux (Documentation/filesystems/squashfs.rst, fs/squashfs/squashfs_fs.h). Every length is held against what
can be there; folders that contain themselves, blocks that are longer than they say, and tables that point elsewhere are faults.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from cordee.machine.squashfs.decompressors import decompressor

COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
_SUPERBLOCK = struct.Struct("<5I6H8Q")
_INODE = struct.Struct("<4H2I")
_NONE = 0xFFFFFFFF
_METADATA_BYTES, _BLOCK_BYTES = 8192, 1 << 20
_STORED, _DATA_STORED = 0x8000, 1 << 24
_MOST_NAMES, _MOST_DEPTH, _MOST_VALUES, _VALUE_BYTES = 20_000_000, 512, 256, 1 << 16
_CACHED, _MOST_BLOCKS = 512, 1 << 22
_KINDS = {1: "folder", 2: "file", 3: "link", 4: "device", 5: "device", 6: "fifo", 7: "socket"}
_PREFIXES = {0: "user.", 1: "trusted.", 2: "security."}
# Of each type of inode: its fields behind the common ones, up to what has no fixed length.
_FIELDS = {
    1: struct.Struct("<IIHHI"), 2: struct.Struct("<IIII"), 3: struct.Struct("<II"), 4: struct.Struct("<II"), 5: struct.Struct("<II"),
    6: struct.Struct("<I"), 7: struct.Struct("<I"), 8: struct.Struct("<IIIIHHI"), 9: struct.Struct("<QQQIIII"), 10: struct.Struct("<II"),
    11: struct.Struct("<III"), 12: struct.Struct("<III"), 13: struct.Struct("<II"), 14: struct.Struct("<II"),
}  # fmt: skip


class SquashfsFault(Exception):
    """What is read is no squashfs, or a damaged one; says of what."""


class SquashfsNode(NamedTuple):
    """One name in it.

    Attributes:
        path: from the root, without a slash before.
        kind: `folder`, `file`, `link`, `device`, `fifo`, `socket`.
        mode: permission bits, set-user-id among them.
        uid: of its owner.
        mtime: epoch seconds.
        size: of a file, bytes.
        inode: where it is described.
        attributes: the number of its extended attributes' list; None: it has none.
    """

    path: str
    kind: str
    mode: int
    uid: int
    mtime: int
    size: int
    inode: int
    attributes: int | None


class _Inode(NamedTuple):
    kind: str
    mode: int
    uid: int
    mtime: int
    fields: tuple[int, ...]
    attributes: int | None
    behind: int  # where in its metadata block what has no fixed length begins
    block: int


class StoredFile(NamedTuple):
    """Where the content of a file lies."""

    inode: int
    size: int
    lengths: array[int]  # of its blocks, with the bit that says that one is stored as it is
    starts: array[int]
    fragment: int
    offset: int  # in the fragment


class SquashfsReader:
    """A squashfs that is open.

    Args:
        descriptor: of the file; stays open, and its position where it is.

    Attributes:
        compression: by its name.
        made_at: epoch seconds.
        block_bytes: of a block of data, unpacked.
        flags: of the file as a whole.
        data_bytes: where its data end and its tables begin.
        has_attributes: whether names in it have extended attributes.

    Raises:
        SquashfsFault: it is none, is cut off, or nothing here unpacks its compression.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        first = os.pread(descriptor, _SUPERBLOCK.size, 0)
        if len(first) < _SUPERBLOCK.size or first[:4] != b"hsqs":
            raise SquashfsFault("it is no squashfs")
        words = _SUPERBLOCK.unpack(first)
        _, _, self.made_at, self.block_bytes, self._fragments, compression, _, self.flags, self._ids, major, minor = (
            words[:11]
        )
        self._root, self._used, self._id_at, self._xattr_at, self._inode_at, self._dir_at, self._fragment_at, _ = words[
            11:
        ]
        self.data_bytes, self.has_attributes = self._inode_at, self._xattr_at < self._used
        if (major, minor) != (4, 0):
            raise SquashfsFault(f"it is squashfs {major}.{minor}, not 4.0")
        if os.fstat(descriptor).st_size < self._used:
            raise SquashfsFault("it is cut off")
        if not 4096 <= self.block_bytes <= _BLOCK_BYTES:
            raise SquashfsFault("its blocks are of a size that none have")
        self.compression = COMPRESSIONS.get(compression, f"number {compression}")
        unpack = decompressor(self.compression)
        if unpack is None:
            raise SquashfsFault(f"nothing here unpacks its compression, {self.compression}")
        self._unpack = unpack
        self._cache: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._owners: dict[int, int] = {}
        self._opened: StoredFile | None = None
        self._last = -1, -1, b""

    def walk(self) -> Iterator[SquashfsNode]:
        """Yield all names below the root, folders before what is in them.

        Raises:
            SquashfsFault: it is damaged.
        """
        waiting, seen, count = [("", self._root, 0)], {self._root}, 0
        while waiting:
            prefix, reference, depth = waiting.pop()
            for name, inner in self._listed(self._inode(reference)):
                count += 1
                if count > _MOST_NAMES:
                    raise SquashfsFault(f"it has more than {_MOST_NAMES:,} names")
                inode = self._inode(inner)
                path = prefix + name
                size = inode.fields[1 if len(inode.fields) == 7 else 3] if inode.kind == "file" else 0
                yield SquashfsNode(
                    path, inode.kind, inode.mode, self._owner(inode.uid), inode.mtime, size, inner, inode.attributes
                )
                if inode.kind == "folder":
                    if inner in seen or depth > _MOST_DEPTH:
                        raise SquashfsFault("a folder lies within itself, or too deep")
                    seen.add(inner)
                    waiting.append((path + "/", inner, depth + 1))

    def root(self) -> tuple[int, int]:
        """Return permission bits and time of the root.

        Raises:
            SquashfsFault: it is damaged.
        """
        root = self._inode(self._root)
        return root.mode, root.mtime

    def target(self, node: SquashfsNode) -> str:
        """Return where a symbolic link leads.

        Raises:
            SquashfsFault: it is damaged.
        """
        inode = self._inode(node.inode)
        text, _, _ = self._metadata(inode.block, inode.behind, min(inode.fields[1], _VALUE_BYTES))
        return text.decode("utf-8", "surrogateescape")

    def fragments(self) -> bytes:
        """Return the table of fragments, 16 bytes each.

        Raises:
            SquashfsFault: it is damaged.
        """
        return b"".join(self._in_table(self._fragment_at, number, 16) for number in range(self._fragments))

    def read(self, node: SquashfsNode, limit: int, offset: int = 0) -> bytes:
        """Return a piece of a file: at most `limit` bytes from `offset` on.

        Raises:
            SquashfsFault: it is damaged.
        """
        if node.kind != "file":
            return b""
        if self._opened is None or self._opened.inode != node.inode:
            self._opened = self.stored(node.inode)
        opened, content = self._opened, bytearray()
        end = min(opened.size, offset + limit)
        while offset + len(content) < end:
            at = offset + len(content)
            piece = self._block_of(opened, at // self.block_bytes)
            begin = at % self.block_bytes
            content += piece[begin : begin + end - at]
        return bytes(content)

    def stored(self, inode: int) -> StoredFile:
        """Return where the blocks of a file lie.

        Raises:
            SquashfsFault: it is damaged.
        """
        about = self._inode(inode)
        if len(about.fields) == 7:
            start, size, _, _, fragment, offset, _ = about.fields
        else:
            start, fragment, offset, size = about.fields
        count = size // self.block_bytes if fragment != _NONE else -(-size // self.block_bytes)
        if count > _MOST_BLOCKS or start > self._used:
            raise SquashfsFault("a file has more blocks than there can be, or they lie elsewhere")
        lengths = array("I", self._metadata(about.block, about.behind, 4 * count)[0] if count else b"")
        if sys.byteorder == "big":
            lengths.byteswap()
        stored = (length & ~_DATA_STORED for length in lengths)
        return StoredFile(inode, size, lengths, array("Q", accumulate(stored, initial=start)), fragment, offset)

    def _block_of(self, opened: StoredFile, number: int) -> bytes:
        """Return a block of a file, unpacked; the one that was read last is kept."""
        if self._last[:2] == (opened.inode, number):
            return self._last[2]
        left = min(self.block_bytes, opened.size - number * self.block_bytes)
        if number < len(opened.lengths):
            length = opened.lengths[number]
            stored = length & ~_DATA_STORED
            data = self._data(opened.starts[number], stored, length & _DATA_STORED, left) if stored else bytes(left)
        else:
            data = self._fragment(opened.fragment)[opened.offset : opened.offset + left]
        if len(data) < left:
            raise SquashfsFault("a file is shorter than it says")
        self._last = opened.inode, number, data
        return data

    def attributes(self, node: SquashfsNode) -> dict[str, bytes]:
        """Return the extended attributes of a name.

        Raises:
            SquashfsFault: it is damaged.
        """
        if node.attributes is None or self._xattr_at >= self._used:
            return {}
        start, count = struct.unpack("<QI", self._at(self._xattr_at, 12))
        if node.attributes >= count:
            raise SquashfsFault("extended attributes are missing")
        entry = self._in_table(self._xattr_at + 16, node.attributes, 16)
        reference, values, _ = struct.unpack("<QII", entry)
        found: dict[str, bytes] = {}
        block, at = start + (reference >> 16), reference & 0xFFFF
        for _ in range(min(values, _MOST_VALUES)):
            (head, block, at) = self._metadata(block, at, 4)
            kind, length = struct.unpack("<HH", head)
            (name, block, at) = self._metadata(block, at, length)
            (head, block, at) = self._metadata(block, at, 4)
            (length,) = struct.unpack("<I", head)
            (value, block, at) = self._metadata(block, at, min(length, _VALUE_BYTES))
            if kind & 0x100:  # the value stands elsewhere
                (where,) = struct.unpack("<Q", value[:8].ljust(8, b"\0"))
                (head, other, behind) = self._metadata(start + (where >> 16), where & 0xFFFF, 4)
                value = self._metadata(other, behind, min(struct.unpack("<I", head)[0], _VALUE_BYTES))[0]
            found[_PREFIXES.get(kind & 0xFF, "") + name.decode("utf-8", "replace")] = value
        return found

    def _listed(self, inode: _Inode) -> Iterator[tuple[str, int]]:
        """Yield (name, where its inode is) of a folder."""
        if inode.kind != "folder":
            raise SquashfsFault("its root is no folder")
        if len(inode.fields) == 7:
            _, size, start, _, _, offset, _ = inode.fields
        else:
            start, _, size, offset, _ = inode.fields
        left, block, at = size - 3, self._dir_at + start, offset
        while left > 0:
            (head, block, at) = self._metadata(block, at, 12)
            count, inodes, _ = struct.unpack("<III", head)
            left -= 12
            if count >= 256:
                raise SquashfsFault("a folder is damaged")
            for _ in range(count + 1):
                (head, block, at) = self._metadata(block, at, 8)
                where, _, _, length = struct.unpack("<HhHH", head)
                (name, block, at) = self._metadata(block, at, length + 1)
                left -= 9 + length
                if left < 0 or b"/" in name or name in (b".", b".."):
                    raise SquashfsFault("a folder is damaged, or a name in it leads elsewhere")
                yield name.decode("utf-8", "surrogateescape"), inodes << 16 | where

    def _inode(self, reference: int) -> _Inode:
        head, block, at = self._metadata(self._inode_at + (reference >> 16), reference & 0xFFFF, _INODE.size)
        kind, mode, uid, _, mtime, _ = _INODE.unpack(head)
        layout = _FIELDS.get(kind)
        if layout is None:
            raise SquashfsFault(f"an inode is of a type that is not known, {kind}")
        more, block, at = self._metadata(block, at, layout.size)
        fields = layout.unpack(more)
        attributes = fields[-1] if kind in (8, 9, 11, 12, 13, 14) and fields[-1] != _NONE else None
        return _Inode(_KINDS[kind if kind < 8 else kind - 7], mode & 0o7777, uid, mtime, fields, attributes, at, block)

    def _owner(self, number: int) -> int:
        if number not in self._owners:
            if number >= self._ids:
                raise SquashfsFault("an owner is missing")
            self._owners[number] = int.from_bytes(self._in_table(self._id_at, number, 4), "little")
        return self._owners[number]

    def _fragment(self, number: int) -> bytes:
        if number >= self._fragments:
            raise SquashfsFault("a fragment is missing")
        start, size, _ = struct.unpack("<QII", self._in_table(self._fragment_at, number, 16))
        return self._data(start, size & ~_DATA_STORED, size & _DATA_STORED, self.block_bytes)

    def _in_table(self, at: int, number: int, size: int) -> bytes:
        """Return an entry of a table whose list of metadata blocks is at a position."""
        each = _METADATA_BYTES // size
        (block,) = struct.unpack("<Q", self._at(at + 8 * (number // each), 8))
        return self._metadata(block, number % each * size, size)[0]

    def _data(self, at: int, length: int, stored: int, most: int) -> bytes:
        if length > _BLOCK_BYTES + 4096:
            raise SquashfsFault("a block is longer than any")
        data = self._at(at, length)
        if stored:
            return data[:most]
        try:
            return self._unpack(data, self.block_bytes)[:most]
        except ValueError as error:
            raise SquashfsFault(str(error)) from None

    def _metadata(self, block: int, at: int, size: int) -> tuple[bytes, int, int]:
        """Return bytes of the metadata from a block on, and where the next ones are."""
        parts, left = [], size
        while True:
            content, behind = self._block(block)
            if at > len(content):
                raise SquashfsFault("a position lies behind its block")
            piece = content[at : at + left]
            parts.append(piece)
            left, at = left - len(piece), at + len(piece)
            if not left:
                return b"".join(parts) if len(parts) > 1 else piece, block, at
            if not content:
                raise SquashfsFault("a block of metadata is empty")
            block, at = behind, 0

    def _block(self, block: int) -> tuple[bytes, int]:
        """Return a block of metadata, unpacked, and where the next one begins."""
        kept = self._cache.get(block)
        if kept is not None:
            self._cache.move_to_end(block)
            return kept
        (head,) = struct.unpack("<H", self._at(block, 2))
        size = head & ~_STORED
        data = self._at(block + 2, size)
        if not head & _STORED:
            try:
                data = self._unpack(data, _METADATA_BYTES)
            except ValueError as error:
                raise SquashfsFault(str(error)) from None
        self._cache[block] = data[:_METADATA_BYTES], block + 2 + size
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return self._cache[block]

    def _at(self, offset: int, size: int) -> bytes:
        if offset + size > self._used or offset < 0:
            raise SquashfsFault("a table points behind its end")
        data = os.pread(self._file, size, offset)
        if len(data) < size:
            raise SquashfsFault("it is cut off")
        return data
