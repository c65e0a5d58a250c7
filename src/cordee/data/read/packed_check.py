"""Whether a shard is the one that an index describes: its size, and what stands at its first and last sample.

In tar files that is the header of a member; other formats have none, and the bytes themselves are compared.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Callable, Optional

from cordee.data.shards.index import Index
from cordee.errors import CorruptDataError

HEADER_BYTES = 512
_MOST_COMPARED_BYTES = 1 << 20
_NEXT = (
    "copy shards and index again from where they were packed, or make the index anew: `cordee data pack --index-only`"
)


def check_shard(
    index: Index, shard: int, size: int, read: Callable[[int, int], bytes], cut_off_too: bool = False
) -> None:
    """Compare a shard with its index.

    Args:
        size: bytes of the shard as storage says.
        read: called with (offset, length).
        cut_off_too: one that is shorter than its index says is only warned of: what it still has may be read.

    Raises:
        CorruptDataError: it is another shard, or it is cut off.
    """
    expected = index.shards[shard]
    cut_off = size < expected.bytes and cut_off_too
    if cut_off:
        text = f"{index.shard_path(shard)} is cut off: {size} bytes, {expected.bytes} in the index"
        warnings.warn(f"{text}; the samples that are missing are left out", RuntimeWarning, stacklevel=2)
    elif size != expected.bytes:
        what = "is cut off" if size < expected.bytes else "is longer than its index says"
        raise _other(index, shard, f"{what}: {size} bytes, {expected.bytes} in the index")
    if not expected.samples:
        return
    first = int(index.columns["shard"].searchsorted(shard))
    for sample, last in ((first, False), (first + expected.samples - 1, True)):
        if last and cut_off:
            continue
        if expected.name.endswith(".tar"):
            _check_member(index, shard, sample, last, read)
        else:
            _check_bytes(index, shard, sample, read)


def _check_bytes(index: Index, shard: int, sample: int, read: Callable[[int, int], bytes]) -> None:
    """Compare a sample's smallest field with its check sum."""
    columns = index.columns
    lengths = columns["length"][sample].tolist()
    there = [(length, field) for field, length in enumerate(lengths) if length >= 0]
    if not there or "crc32" not in columns:
        return
    length, field = min(there)
    if length <= _MOST_COMPARED_BYTES:
        found = zlib.crc32(read(int(columns["offset"][sample, field]), length)) if length else 0
        if found != int(columns["crc32"][sample, field]):
            raise _other(index, shard, f"other bytes stand where {index.key(sample)}.{index.fields[field]} should")


def _check_member(index: Index, shard: int, sample: int, last: bool, read: Callable[[int, int], bytes]) -> None:
    """Compare the tar header before a sample's first (or last) field with what the index says of it."""
    lengths, offsets = index.columns["length"][sample].tolist(), index.columns["offset"][sample].tolist()
    there = [(offset, length, field) for offset, length, field in zip(offsets, lengths, index.fields) if length >= 0]
    if not there:
        return
    offset, length, field = max(there) if last else min(there)
    name = f"{index.key(sample)}.{field}"
    found = _member(read(offset - HEADER_BYTES, HEADER_BYTES)) if offset >= HEADER_BYTES else None
    if found is None:
        raise _other(index, shard, f"no tar header stands before {name!r} at byte {offset}")
    if found[1] is not None and found[1] != length:
        raise _other(index, shard, f"{found[0]!r} stands where {name!r} of another length should")
    # A name that ustar cannot hold is in an extended header before this one, which holds some other form of it.
    if name.isascii() and len(name) <= 100 and found[0].lstrip("./") != name.lstrip("./"):
        raise _other(index, shard, f"{found[0]!r} stands where {name!r} should")


def _member(header: bytes) -> Optional[tuple[str, Optional[int]]]:
    """Return a tar header's name and size (None: in an extended header); None when it is no header."""
    if len(header) < HEADER_BYTES:
        return None
    try:
        told = int(header[148:156].rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        return None
    if told != sum(header) - sum(header[148:156]) + 8 * 32:
        return None
    name = header[:100].rstrip(b"\0")
    prefix = header[345:500].rstrip(b"\0") if header[257:263] == b"ustar\0" else b""
    text = (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")
    if header[124] & 0x80:
        return text, int.from_bytes(header[125:136], "big")
    size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
    return text, size or None


def _other(index: Index, shard: int, what: str) -> CorruptDataError:
    return CorruptDataError(
        f"a shard is not the one of this index: {what}",
        given=f"{index.shard_path(shard)} with {index.path}",
        allowed=f"the shards of the data set {index.name!r} ({index.id})",
        next=_NEXT,
    )
