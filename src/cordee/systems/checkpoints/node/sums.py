"""Check sums of a checkpoint's files: shared out to the ranks when they are made, and when they are looked at again."""

from __future__ import annotations

import os
import re
import zlib
from typing import Iterable, Union

from cordee.machine.foreign_files import regular
from cordee.systems.checkpoints.node.folder import read_manifest

_BLOCK_BYTES = 4 << 20
# Where writers leave word for each other.
WORDS = ".written-"
_OF_RANK = re.compile(r"(?:__|rank-)([0-9]+)[_.]")


def crc32_of(path: str) -> int:
    """Return the CRC-32 of a file, at 1 GB/s and more from memory.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    value = 0
    with open(path, "rb", opener=regular) as file:
        while block := file.read(_BLOCK_BYTES):
            value = zlib.crc32(block, value)
    return value


def file_with_sum(path: str, pieces: Iterable[Union[bytes, bytearray, memoryview]], durable: bool = False) -> int:
    """Write a file, over one that is there, and return its CRC-32.

    Args:
        pieces: what it consists of.
        durable: whether it must be on the disk when this returns.

    Raises:
        OSError: it cannot be written.
    """
    value = 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
        for piece in pieces:
            value = zlib.crc32(piece, value)
            file.write(piece)
        file.truncate()
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return value


def written_sums(folder: str, rank: int) -> dict[str, int]:
    """Return `{name: CRC-32}` of the files that a rank wrote into a checkpoint; rank 0 has those of all, too."""
    return {name: crc32_of(os.path.join(folder, name)) for name in files_of(folder, rank)}


def files_of(folder: str, rank: int) -> list[str]:
    """Return the names of the files that a rank wrote into a checkpoint; those of all are rank 0's, too."""
    numbers = ((name, _OF_RANK.match(name)) for name in sorted(os.listdir(folder)) if not name.startswith(WORDS))
    return [name for name, match in numbers if (int(match.group(1)) if match else 0) == rank]


def verify(path: str, rank: int, size: int) -> None:
    """Compare this rank's share of a checkpoint's files with its manifest; what has no sum there is compared by size.

    Raises:
        OSError, ValueError: a file is missing, or not what was written; the message names it.
    """
    manifest = read_manifest(path)
    sums = manifest.get("crc32")
    sums = sums if isinstance(sums, dict) else {}
    for name, written in sorted(manifest["files"].items())[rank::size]:
        actual = os.stat(os.path.join(path, name)).st_size
        if actual != written:
            raise ValueError(f"{name} has {actual} bytes, {written} were written")
        if name in sums and crc32_of(os.path.join(path, name)) != sums[name]:
            raise ValueError(f"{name} is damaged: its CRC-32 is another than when it was written")
