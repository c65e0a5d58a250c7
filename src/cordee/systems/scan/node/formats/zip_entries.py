"""The entries of a zip archive: those that its directories name, and those that stand in the file beside these.

Loaders ignore check sums, flags and what stands before and behind an archive, each in its own way: so nothing of that matters here.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from typing import Any, Callable, Iterator, NamedTuple, Optional

from cordee.systems.scan.node.source import BytesSource, ScanBudget, Source, TooMuch

LOCAL, DIRECTORY, END, END64, LOCATOR64 = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_TAIL = (64 << 10) + 22
_STORED, _DEFLATED, _BZIP2, _LZMA = 0, 8, 12, 14
_MOST_ENTRIES = 200_000
_MOST_GAP = 64
# What a header can say, see APPNOTE.TXT 4.4.3 and 4.4.5: the mark alone stands in programs that read archives, too.
_METHODS = {*range(21), *range(93, 100)}
_NEWEST_VERSION = 63
_ENTRY_BYTES = 1 << 30
_NONE32 = 0xFFFFFFFF


class ZipEntry(NamedTuple):
    """One entry.

    Attributes:
        name: as the archive has it.
        method: of compression.
        begin: where its header stands in the source.
        data: where its bytes begin.
        packed: how many there are.
        named: whether a directory of the archive names it.
    """

    name: str
    method: int
    begin: int
    data: int
    packed: int
    named: bool


def directory_ends(source: Source) -> list[int]:
    """Return where directories of zip archives end, searched where loaders search: near the end."""
    begin = max(0, source.size - _TAIL)
    return [begin + at for at in _found(source.at(begin, _TAIL), END)]


def entries(source: Source) -> Iterator[ZipEntry]:
    """Yield all entries, each once.

    Raises:
        TooMuch: there are more than 200,000.
        ValueError: it has neither a directory nor entries.
    """
    count, seen = 0, set()
    known: list[tuple[int, int]] = []
    for search in (directory_ends, lambda source: list(_ends_between(source, sorted(known)))):
        for entry in _named(source, search(source)):
            known.append((entry.begin, entry.data + entry.packed))
            if (entry.data, entry.name) not in seen:
                seen.add((entry.data, entry.name))
                yield entry
                count = _counted(count)
    for entry in _unnamed(source, sorted(known)):
        yield entry
        count = _counted(count)
    if not count and not directory_ends(source):
        raise ValueError("no entry can be found")


def content(source: Source, entry: ZipEntry, budget: ScanBudget) -> Source:
    """Return what an entry holds, unpacked.

    Raises:
        ValueError: it cannot be unpacked.
        TooMuch: it unpacks to more than may be held.
    """
    packed = source.part(entry.data, entry.packed)
    if entry.method == _STORED:
        return packed
    if entry.method == _DEFLATED:
        return _begun(unpacked(packed, lambda: zlib.decompressobj(-15), budget))
    if entry.method == _BZIP2:
        return _begun(unpacked(packed, bz2.BZ2Decompressor, budget))
    if entry.method == _LZMA:
        skip = 4 + struct.unpack("<H", packed.at(2, 2))[0]
        return _begun(unpacked(packed, lambda: _zip_lzma(packed), budget, skip))
    raise ValueError(f"it is packed by method {entry.method}, which cannot be read here")


class UnpackedStreams(NamedTuple):
    """What a decompressor made of some bytes.

    Attributes:
        source: what came before a fault.
        fault: that ended it; empty: none.
    """

    source: Source
    fault: str


def unpacked(packed: Source, make: Callable[[], Any], budget: ScanBudget, skip: int = 0) -> UnpackedStreams:
    """Return what is in all streams that follow each other, as loaders read them.

    Args:
        packed: the bytes.
        make: makes a decompressor.
        budget: that it is taken from.
        skip: bytes before the first stream.

    Raises:
        TooMuch: it is more than 1 GiB, or than the budget has.
    """
    pieces: list[bytes] = []
    size, machine, fault = 0, make(), ""
    try:
        for _, data in packed.part(skip, packed.size).chunks():
            while data or not getattr(machine, "needs_input", True):
                if machine.eof:
                    data = data.lstrip(b"\0")  # what pads streams
                    if not data:
                        break
                    machine = make()
                out = machine.decompress(data, 1 << 20)
                data = machine.unused_data if machine.eof else getattr(machine, "unconsumed_tail", b"")
                budget.unpacked(len(out))
                size += len(out)
                if size > _ENTRY_BYTES:
                    raise TooMuch("one entry unpacks to more than 1 GiB")
                pieces.append(out)
                if not out and not data and not machine.eof:
                    break
    except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError, RuntimeError) as error:
        fault = str(error)
    if not fault and not machine.eof:
        fault = "it is cut off"
    return UnpackedStreams(BytesSource(b"".join(pieces)), fault)


def _begun(result: UnpackedStreams) -> Source:
    if result.fault and not result.source.size:
        raise ValueError(f"it cannot be unpacked ({result.fault})")
    return result.source


def _zip_lzma(packed: Source) -> object:
    size = struct.unpack("<H", packed.at(2, 2))[0]
    properties = packed.at(4, size)
    if len(properties) < 5:
        raise ValueError("its LZMA properties are cut off")
    first, dictionary = properties[0], struct.unpack("<I", properties[1:5])[0]
    filters = [
        {
            "id": lzma.FILTER_LZMA1,
            "dict_size": min(dictionary, 64 << 20),
            "lc": first % 9,
            "lp": first // 9 % 5,
            "pb": first // 45,
        }
    ]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)


def _counted(count: int) -> int:
    if count >= _MOST_ENTRIES:
        raise TooMuch("more than 200,000 entries")
    return count + 1


def _found(data: bytes, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)


def _named(source: Source, ends: list[int]) -> Iterator[ZipEntry]:
    """Yield what these directories name; an archive may stand behind other bytes, its offsets count from its own begin then."""
    for end in ends:
        record = source.at(end, 22)
        if len(record) < 22:
            continue
        size, offset = struct.unpack("<II", record[12:20])
        at_end = end
        far = source.at(end - 20 - 56, 56) if source.at(end - 20, 4) == LOCATOR64 else b""
        if far[:4] == END64:  # written for large archives, and by some for all
            at_end = end - 76
            if _NONE32 in (size, offset):
                size, offset = struct.unpack("<QQ", far[40:56])
        before = at_end - size - offset
        for shift in dict.fromkeys((before if before > 0 else 0, 0)):
            yield from _directory(source, offset + shift, size, shift)


def _directory(source: Source, at: int, size: int, shift: int) -> Iterator[ZipEntry]:
    stop = min(at + size, source.size)
    while at < stop:
        head = source.at(at, 46)
        if len(head) < 46 or head[:4] != DIRECTORY:
            return
        method, packed, unpacked_size = struct.unpack("<H", head[10:12])[0], *struct.unpack("<II", head[20:28])
        name_size, extra_size, comment_size = struct.unpack("<HHH", head[28:34])
        local = struct.unpack("<I", head[42:46])[0]
        name = source.at(at + 46, name_size)
        extra = source.at(at + 46 + name_size, extra_size)
        _, packed, local = _wide(extra, unpacked_size, packed, local)
        at += 46 + name_size + extra_size + comment_size
        found = _local(source, local + shift, packed, named=True, name=name, method=method)
        if found is not None:
            yield found


def _wide(extra: bytes, size: int, packed: int, local: int) -> tuple[int, int, int]:
    """Return sizes and position, from the field for large archives where they stand there."""
    while len(extra) >= 4:
        kind, length = struct.unpack("<HH", extra[:4])
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == 1:
            wide = [struct.unpack("<Q", field[at : at + 8])[0] for at in range(0, len(field) - 7, 8)]
            values = [wide.pop(0) if value == _NONE32 and wide else value for value in (size, packed, local)]
            return values[0], values[1], values[2]
    return size, packed, local


def _local(
    source: Source, at: int, packed: Optional[int], *, named: bool, name: bytes = b"", method: Optional[int] = None
) -> Optional[ZipEntry]:
    head = source.at(at, 30)
    if len(head) < 30 or head[:4] != LOCAL:
        return None
    name_size, extra_size = struct.unpack("<HH", head[26:30])
    begin = at + 30 + name_size + extra_size
    if packed is None:
        stated, unpacked_size = struct.unpack("<II", head[18:26])
        _, packed, _ = _wide(source.at(at + 30 + name_size, extra_size), unpacked_size, stated, 0)
        if not packed and head[6] & 8:  # its size stands behind it: as far as the next header
            packed = _next_header(source, begin) - begin
    shown = (name or source.at(at + 30, name_size)).decode("utf-8", "replace")
    kind = struct.unpack("<H", head[8:10])[0] if method is None else method
    return ZipEntry(shown, kind, at, begin, min(packed, max(0, source.size - begin)), named)


def _unnamed(source: Source, known: list[tuple[int, int]]) -> Iterator[ZipEntry]:
    """Yield entries that stand where no directory says that there is one."""
    for begin, end in _gaps(source, known):
        yield from _between(source, begin, end)


def _ends_between(source: Source, known: list[tuple[int, int]]) -> Iterator[int]:
    """Yield where directories end that stand further in front: of archives one after the other, as PyTorch's distributed checkpoints are."""
    for begin, end in _gaps(source, known):
        for offset, piece in source.part(begin, end - begin).chunks(overlap=3):
            for at in _found(piece, END):
                yield begin + offset + at


def _gaps(source: Source, known: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    at = 0
    for begin, end in [*known, (source.size, source.size)]:
        if begin - at > _MOST_GAP:
            yield at, begin
        at = max(at, end)


def _between(source: Source, begin: int, end: int) -> Iterator[ZipEntry]:
    gap = source.part(begin, end - begin)
    for offset, piece in gap.chunks(overlap=3):
        for at in _found(piece, LOCAL):
            entry = _local(source, begin + offset + at, None, named=False)
            version = source.at(begin + offset + at + 4, 1)
            if entry is not None and entry.method in _METHODS and version[0] <= _NEWEST_VERSION:
                yield entry


def _next_header(source: Source, begin: int) -> int:
    rest = source.part(begin, source.size - begin)
    for offset, piece in rest.chunks(overlap=3):
        found = [at for at in (piece.find(LOCAL), piece.find(DIRECTORY)) if at >= 0]
        if found:
            return begin + offset + min(found)
    return source.size
