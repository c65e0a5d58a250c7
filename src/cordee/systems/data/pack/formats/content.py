"""The bytes of an entry, read so that a file which changes meanwhile is noticed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from isal.isal_zlib import crc32

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import PackedEntry, Sample
from cordee.systems.data.pack._base import CHUNK_BYTES, Unreadable

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

_T = TypeVar("_T")
# A file that became a pipe since it was listed must not hang.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def pieces(plan: PackPlan, entry: PackedEntry) -> Iterator[bytes]:
    """Yield the bytes of an entry: as many as were listed, of the file that was listed.

    Raises:
        Unreadable: it cannot be read, or is another one now.
    """
    path = plan.path_of(entry)
    got = 0
    try:
        for piece in plan.origin.chunks(entry) if path is None else _file_pieces(path, entry):
            got += len(piece)
            yield piece
    except (OSError, DataError) as error:
        raise Unreadable(entry, _reason(error)) from None
    if got != entry.length:
        raise Unreadable(entry, f"holds {got} bytes where {entry.length} were listed")


def _file_pieces(path: bytes, entry: PackedEntry) -> Iterator[bytes]:
    descriptor = os.open(path, _OPEN)
    try:
        _refuse_changed(os.fstat(descriptor), entry)
        at, end = entry.offset, entry.offset + entry.length
        while at < end and (piece := os.pread(descriptor, min(end - at, CHUNK_BYTES), at)):
            at += len(piece)
            yield piece
        _refuse_changed(os.fstat(descriptor), entry)
    finally:
        os.close(descriptor)


def _refuse_changed(status: os.stat_result, entry: PackedEntry) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(entry, "is no regular file any more")
    if entry.stamp_ns >= 0 and (status.st_mtime_ns, status.st_size) != (entry.stamp_ns, entry.length):
        raise Unreadable(entry, "changed after it was listed")


def write_at(descriptor: int, offset: int, content: Iterable[bytes]) -> int:
    """Write pieces one after the other from `offset` on; return their CRC-32."""
    check = 0
    for piece in content:
        check = crc32(piece, check)
        rest = memoryview(piece)
        while rest:
            done = os.pwrite(descriptor, rest, offset)
            offset, rest = offset + done, rest[done:]
    return check


def without_unreadable(
    plan: PackPlan, samples: list[Sample], skip_unreadable: bool, write: Callable[[list[Sample]], _T]
) -> tuple[_T, list[str]]:
    """Return what `write` makes of the samples, and what had to be left out, by name and reason.

    Files are laid out before they are read; so one that cannot be read is left out by beginning anew.

    Raises:
        Unreadable: something cannot be read, and is not to be left out.
    """
    left_out: list[str] = []
    while True:
        try:
            return write(samples), left_out
        except Unreadable as fault:
            if not skip_unreadable:
                raise
            faults = {fault.entry.name: fault, **_unreadable_now(plan, samples)}
            left_out += [f"{_shown(one.entry)}: {one.reason}" for one in faults.values()]
            samples = [sample for sample in samples if not any(entry.name in faults for entry in sample.entries)]


def _unreadable_now(plan: PackPlan, samples: list[Sample]) -> dict[bytes, Unreadable]:
    """Return the entries that cannot be opened at all, so that they cost one new beginning and not one each."""
    found = {}
    for sample in samples:
        for entry in sample.entries:
            path = plan.path_of(entry)
            try:
                if path is not None:
                    descriptor = os.open(path, _OPEN)
                    try:
                        _refuse_changed(os.fstat(descriptor), entry)
                    finally:
                        os.close(descriptor)
            except Unreadable as fault:
                found[entry.name] = fault
            except OSError as error:
                found[entry.name] = Unreadable(entry, _reason(error))
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is gone"
    words = error.strerror if isinstance(error, OSError) else str(getattr(error, "text", error))
    return f"cannot be read: {words}"


def _shown(entry: PackedEntry) -> str:
    return entry.name.decode("utf-8", "backslashreplace")
