"""Whether a shard is the one that an index describes: its size, the tar headers of its first and last sample, and the bytes
of a few samples, where the index has their check sums.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Callable, Optional

from cordee.core.errors import CorruptDataError
from cordee.systems.data.node.shards.index import ShardIndex

HEADER_BYTES = 512
_MOST_COMPARED_BYTES = 8 << 20
_MOST_COMPARED = 8
_NEXT = (
    "copy shards and index again from where they were packed, or make the index anew: `cordee data pack --index-only`"
)


def check_shard(
    index: ShardIndex, shard: int, size: int, read: Callable[[int, int], bytes], cut_off_too: bool = False
) -> None:
    """Compare a shard with its index.

    Args:
        size: bytes of the shard as storage says.
        read: called with (offset, length).
        cut_off_too: one that is shorter than its index says is only warned of: what it still has may be read. One that is
            damaged in many places is accepted, too: those samples are left out one by one.

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
    last = first + expected.samples - 1
    if expected.name.endswith(".tar"):
        _check_member(index, shard, first, False, read)
        if not cut_off:
            _check_member(index, shard, last, True, read)
    compare_bytes(index, shard, range(first, last + 1), size, read, cut_off_too)


def compare_bytes(
    index: ShardIndex, shard: int, samples: range, size: int, read: Callable[[int, int], bytes], lenient: bool = False
) -> None:
    """Compare some samples with their check sums: records of one size have headers that are alike in any data set.

    Two are read where both are as packed; else some more, so that a damaged sample is told from another shard.

    Args:
        read: called with (offset, length).
        lenient: refuse only where none is as packed, else where less than half are.

    Raises:
        CorruptDataError: it is another shard.
    """
    looked = list(dict.fromkeys([samples[0], samples[-1]]))
    same = [_is_same(index, sample, size, read) for sample in looked]
    if False not in same:
        return
    step = max(1, len(samples) // _MOST_COMPARED)
    more = [sample for sample in samples[step // 2 :: step] if sample not in looked]
    same += [_is_same(index, sample, size, read) for sample in more[: _MOST_COMPARED - len(same)]]
    wrong, compared = same.count(False), len(same) - same.count(None)
    if (wrong == compared > 1) if lenient else (2 * wrong > compared):
        text = f"of {compared} samples that were compared {wrong} have other bytes than were packed"
        raise _other(index, shard, f"{text}, the first is {index.key(looked[0])!r}" if compared > 1 else text)


def _is_same(index: ShardIndex, sample: int, size: int, read: Callable[[int, int], bytes]) -> Optional[bool]:
    """Say whether a sample's largest field that is not too large is what was packed; None: it cannot be compared."""
    columns = index.columns
    if "crc32" not in columns:
        return None
    lengths, offsets = columns["length"][sample].tolist(), columns["offset"][sample].tolist()
    there = [
        (length, field)
        for field, (length, offset) in enumerate(zip(lengths, offsets))
        if 0 < length <= _MOST_COMPARED_BYTES and offset + length <= size
    ]
    if not there:
        return None
    length, field = max(there)
    return zlib.crc32(read(offsets[field], length)) == int(columns["crc32"][sample, field])


def _check_member(index: ShardIndex, shard: int, sample: int, last: bool, read: Callable[[int, int], bytes]) -> None:
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
    # A name that ustar cannot hold is in an extended header before this one, which holds some other form of it. Fields are
    # in lower case, endings of files as they came: `.JPEG`.
    if name.isascii() and len(name) <= 100 and found[0].lstrip("./").lower() != name.lstrip("./").lower():
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


def _other(index: ShardIndex, shard: int, what: str) -> CorruptDataError:
    return CorruptDataError(
        f"a shard is not the one of this index: {what}",
        given=f"{index.shard_path(shard)} with {index.path}",
        allowed=f"the shards of the data set {index.name!r} ({index.id})",
        next=_NEXT,
    )
