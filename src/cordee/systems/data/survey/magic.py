"""What a file is, by its first bytes."""

from __future__ import annotations

import os
import tarfile
from itertools import pairwise
from typing import IO

FIRST_BYTES = 4096
# Format, where its magic stands, the magic. Sources: the formats' own specifications.
_MAGICS: tuple[tuple[str, int, bytes], ...] = (
    ("image", 0, b"\xff\xd8\xff"),
    ("image", 0, b"\x89PNG\r\n\x1a\n"),
    ("image", 0, b"GIF8"),
    ("image", 0, b"II*\0"),
    ("image", 0, b"MM\0*"),
    ("image", 8, b"WEBP"),
    ("audio", 8, b"WAVE"),
    ("audio", 0, b"fLaC"),
    ("audio", 0, b"ID3"),
    ("audio", 0, b"OggS"),
    ("video", 4, b"ftyp"),
    ("video", 0, b"\x1aE\xdf\xa3"),
    ("hdf5", 0, b"\x89HDF\r\n\x1a\n"),
    ("parquet", 0, b"PAR1"),
    ("arrow", 0, b"ARROW1"),
    ("npy", 0, b"\x93NUMPY"),
    ("megatron", 0, b"MMIDIDX\0\0"),
    ("squashfs", 0, b"hsqs"),
    ("tar", 257, b"ustar"),
    ("compressed", 0, b"\x1f\x8b"),
    ("compressed", 0, b"\x28\xb5\x2f\xfd"),
    ("compressed", 0, b"\xfd7zXZ\0"),
    ("compressed", 0, b"BZh"),
)
_ZIP = b"PK\x03\x04"
_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def read_first(path: str, count: int = FIRST_BYTES) -> bytes:
    """Return a file's first bytes without a change of its access time where that is allowed.

    Raises:
        OSError: it is gone, or may not be read.
    """
    file = open_quietly(path)
    try:
        return os.read(file, count)
    finally:
        os.close(file)


def open_quietly(path: str) -> int:
    """Return a descriptor for reading, with O_NOATIME where the file is one's own.

    Raises:
        OSError: it is gone, or may not be read.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


def format_of(first: bytes, size: int) -> str | None:
    """Return what a file is by its first bytes; None where they say nothing.

    Args:
        first: at least `FIRST_BYTES` of them, or all.
        size: of the whole file.
    """
    for name, offset, magic in _MAGICS:
        if first[offset : offset + len(magic)] == magic:
            return name
    if first.startswith(_ZIP):
        # The members of an .npz are arrays, of a torch file one folder with a pickle in it.
        member = first[30 : 30 + int.from_bytes(first[26:28], "little")]
        return "npz" if member.endswith(b".npy") else "torch" if member.endswith(b"/data.pkl") else "zip"
    if _is_tfrecord(first, size):
        return "tfrecord"
    if first and b"\0" not in first and _is_text(first):
        return "text"
    return None


def holds_samples(tar: IO[bytes], most: int = 12) -> bool:
    """Return whether a tar is one of WebDataset's: several members of one key stand one after the other.

    Args:
        tar: the file, or its beginning.
        most: members that are looked at.
    """
    names: list[str] = []
    try:
        with tarfile.open(fileobj=tar, mode="r:") as opened:
            while len(names) < most and (member := opened.next()) is not None:
                if member.isfile():
                    names.append(member.name)
    except (OSError, tarfile.TarError):
        pass  # what it told before it ended
    keys = [_key(name) for name in names]
    if not keys or None in keys:
        return False
    groups = sum(1 for one, other in pairwise(keys) if one != other) + 1
    return len(set(keys)) == groups < len(keys)


def _key(name: str) -> str | None:
    folder, slash, base = name.rpartition("/")
    stem, dot, _ = base.partition(".")
    return folder + slash + stem if dot and stem else None


def _is_tfrecord(first: bytes, size: int) -> bool:
    """Return whether it begins with a length and that length's masked CRC-32C. Source: TensorFlow's record_writer.h."""
    if len(first) < 12 or int.from_bytes(first[:8], "little") + 16 > size:
        return False
    crc = 0xFFFFFFFF
    for byte in first[:8]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return int.from_bytes(first[8:12], "little") == masked


def _is_text(first: bytes) -> bool:
    try:
        first.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(first) - 4 and len(first) >= FIRST_BYTES
    return True
