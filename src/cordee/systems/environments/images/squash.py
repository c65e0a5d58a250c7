"""Squashfs files: what their first bytes say, and whether they are whole."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from cordee.core.units import format_size
from cordee.machine.foreign_files import regular
from cordee.machine.images.errors import ImageError

# The superblock of squashfs 4.0, little-endian: Documentation/filesystems/squashfs.rst of Linux and fs/squashfs/squashfs_fs.h.
_SUPERBLOCK = struct.Struct("<5I6H8Q")
_MAGIC = 0x73717368
_COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
# What people hand over instead, by its first bytes.
_OTHERS = (
    (
        b"#!/usr/bin/env run-singularity",
        "a SIF image of Apptainer",
        "apptainer sif dump, or build it from its Docker image",
    ),
    (b"\x1f\x8b", "a gzip file", "oci-archive:FILE or docker-archive:FILE for an archive of an image"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "oci-archive:FILE or docker-archive:FILE for an archive of an image"),
    (b"\x7fELF", "a program", "name the image"),
    (b"version https://git-lfs", "a pointer of git-lfs, not the file itself", "git lfs pull"),
    (b"hsqs", "a squashfs file", ""),
    (b"sqsh", "a squashfs file of a big-endian machine", "make it anew with mksquashfs"),
    (b"<", "a web page", "download the file itself; a login page may have come instead"),
)


class Superblock(NamedTuple):
    """What the superblock says.

    Attributes:
        inodes: number of files, folders and links.
        block_bytes: size of a data block.
        compression: `gzip`, `zstd`, ...
        used_bytes: length of the file system; the file is at least as long.
        made_at: epoch seconds.
    """

    inodes: int
    block_bytes: int
    compression: str
    used_bytes: int
    made_at: int


def is_squashfs(path: Path) -> bool:
    """Return whether a file begins as a squashfs does."""
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(4) == b"hsqs"
    except OSError:
        return False


def read_superblock(path: Path) -> Superblock:
    """Return what a squashfs file says of itself.

    Raises:
        ImageError: it is none (and what it is instead), of another version, or cut off.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            first = file.read(_SUPERBLOCK.size)
            size = file.seek(0, 2)
    except OSError as error:
        raise ImageError(f"the image cannot be read: {error.strerror}", given=str(path)) from None
    if first[:4] != b"hsqs":
        raise _not_squashfs(path, first, size)
    if len(first) < _SUPERBLOCK.size:
        raise _cut_off(path, size, _SUPERBLOCK.size)
    magic, inodes, made_at, block_bytes, _, compression, _, _, _, major, minor, _, used = _SUPERBLOCK.unpack(first)[:13]
    assert magic == _MAGIC
    if (major, minor) != (4, 0):
        raise ImageError(f"the image is squashfs {major}.{minor}", given=str(path), allowed="squashfs 4.0")
    if size < used:
        raise _cut_off(path, size, used)
    return Superblock(inodes, block_bytes, _COMPRESSIONS.get(compression, f"number {compression}"), used, made_at)


def _not_squashfs(path: Path, first: bytes, size: int) -> ImageError:
    if not size:
        return ImageError("the image is an empty file", given=str(path), next="download or make it again")
    what, then = next(((what, then) for begin, what, then in _OTHERS if first.startswith(begin)), ("", ""))
    return ImageError(
        "the image is no squashfs file" + (f" but {what}" if what else ""),
        given=str(path),
        allowed="squashfs, a root folder, an OCI layout or archive, an archive of `docker save`",
        next=then or None,
    )


def _cut_off(path: Path, size: int, whole: int) -> ImageError:
    return ImageError(
        f"the image is cut off: {format_size(size)} of {format_size(whole)} are there",
        given=str(path),
        next="copy, download or make it again",
    )
