"""How a writer writes to a disk that a training uses, too: last in turn, in pieces that the disk begins with at once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import zlib
from typing import Any, Optional

from cordee.systems.checkpoints.node.snapshot import LAST_IN_TURN

PIECE_BYTES = 16 << 20


def put(descriptor: int, chunk: memoryview, value: int) -> int:
    """Write a piece of a file and return its CRC-32, which goes on from `value`."""
    value = zlib.crc32(chunk, value)
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]
    return value


def go_last() -> None:
    """Have this thread run where no other wants to."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, LAST_IN_TURN)


def write_out(descriptor: int, begin: int, end: int) -> None:
    """Have the disk begin with a piece of a file, and wait for the piece before it, which then leaves the page cache.

    Unlike fdatasync this commits no journal of the file system, which others would wait for.
    """
    start, wait = 2, 7  # SYNC_FILE_RANGE_WRITE; and WAIT_BEFORE and WAIT_AFTER
    before = begin - PIECE_BYTES
    if _LIBC is None or _LIBC.sync_file_range(descriptor, begin, end - begin, start) or before < 0:
        return
    _LIBC.sync_file_range(descriptor, before, begin - before, wait)
    os.posix_fadvise(descriptor, before, begin - before, os.POSIX_FADV_DONTNEED)


def _libc() -> Optional[Any]:
    """Return the C library where it has sync_file_range."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    except (OSError, AttributeError):
        return None
    return library


_LIBC = _libc()
