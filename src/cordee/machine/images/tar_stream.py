"""Tar archives read from a stream: the entries of image layers, at the speed of their decompression.

`tarfile` takes a damaged header in the middle for the end of the archive, keeps all entries, and needs ten times as long for a
header. Read here: ustar, pax and GNU archives, with long names, numbers in base 256 and sparse files ("pax Interchange
Format", IEEE Std 1003.1; "Basic Tar Format" and "Storing Sparse Files", manual of GNU tar).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from cordee.machine.images.byte_reader import ByteReader

BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 20
_MAX_EXTENDED_BYTES = 1 << 20
_MAX_MAP = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)
_END = bytes(BLOCK_BYTES)

REGULAR, OLD_REGULAR, CONTIGUOUS, GNU_SPARSE = b"0", b"\0", b"7", b"S"
HARD_LINK, SYMBOLIC_LINK, CHARACTER, BLOCK, FOLDER, PIPE = b"1", b"2", b"3", b"4", b"5", b"6"
_WITH_DATA = (REGULAR, OLD_REGULAR, CONTIGUOUS, GNU_SPARSE)
_XATTR = "SCHILY.xattr."
_CAPABILITY = _XATTR + "security.capability"


class TarFault(Exception):
    """What is read is no tar archive, or a damaged one."""


class SparsePiece(NamedTuple):
    """A part of a sparse file that is stored."""

    offset: int
    size_bytes: int


@dataclass(slots=True)
class TarEntry:
    """An entry.

    Attributes:
        kind: one of the constants of this module, `REGULAR` for all files with data.
        size_bytes: of the file, holes included.
        link: the target of a link.
        uid: of its owner.
        attributes: how many extended attributes it has.
        capable: whether one of them gives it capabilities of the kernel.
        stored_bytes: of its data in the archive.
        pieces: of a sparse file; None: it is not sparse.
    """

    name: str
    kind: bytes
    mode: int
    mtime: int
    size_bytes: int
    link: str
    attributes: int
    stored_bytes: int
    pieces: list[SparsePiece] | None
    uid: int = 0
    capable: bool = False


class TarReader:
    """The entries of an archive, one after another; the data of the last can be copied until the next is asked for."""

    def __init__(self, stream: ByteReader) -> None:
        self._stream = stream
        self._buffer, self._at = b"", 0
        self._left = 0  # of the data of the last entry, with its padding
        self._globals: dict[str, str] = {}

    def next(self) -> TarEntry | None:
        """Return the next entry; None: the archive has ended.

        Raises:
            TarFault: what follows is no entry.
        """
        self._skip(self._left)
        own: dict[str, str] = {}
        long_name = long_link = None
        while True:
            header = self._header()
            if header is None:
                return None
            kind, size = header[156:157], _number(header[124:136])
            if kind in (b"x", b"X"):
                own = _pax_records(self._extended(size))
            elif kind == b"g":
                self._globals.update(_pax_records(self._extended(size)))
            elif kind == b"L":
                long_name = _text(self._extended(size))
            elif kind == b"K":
                long_link = _text(self._extended(size))
            else:
                return self._member(header, {**self._globals, **own}, long_name, long_link)

    def copy(self, member: TarEntry, out: BinaryIO) -> None:
        """Write the data of the entry that was returned last, and zeros where it has holes.

        Raises:
            TarFault: the archive ends before.
        """
        if member.pieces is None:
            self._copy(member.stored_bytes, out)
            return
        at = 0
        for piece in member.pieces:
            _fill(piece.offset - at, out)
            self._copy(piece.size_bytes, out)
            at = piece.offset + piece.size_bytes
        _fill(member.size_bytes - at, out)

    def _member(self, header: bytes, pax: dict[str, str], long_name: str | None, long_link: str | None) -> TarEntry:
        kind = header[156:157]
        name = long_name if long_name is not None else _ustar_name(header)
        stored = _decimal(pax, "size", _number(header[124:136]))
        if stored < 0:
            raise TarFault("a file has less than no data")
        if kind in (OLD_REGULAR, REGULAR) and not stored and name.endswith("/"):
            kind = FOLDER
        member = TarEntry(
            name=pax.get("GNU.sparse.name", pax.get("path", name)),
            kind=REGULAR if kind in _WITH_DATA else kind,
            mode=_number(header[100:108]) & 0o7777,
            mtime=_seconds(pax["mtime"]) if "mtime" in pax else _number(header[136:148]),
            size_bytes=stored if kind in _WITH_DATA else 0,
            link=pax.get("linkpath", long_link if long_link is not None else _text(header[157:257])),
            attributes=sum(key.startswith(_XATTR) for key in pax),
            stored_bytes=stored if kind in _WITH_DATA else 0,
            pieces=None,
            uid=_decimal(pax, "uid", _number(header[108:116])),
            capable=_CAPABILITY in pax,
        )
        self._left = -(-member.stored_bytes // BLOCK_BYTES) * BLOCK_BYTES
        if kind == GNU_SPARSE:
            self._old_sparse(member, header)
        elif "GNU.sparse.map" in pax or "GNU.sparse.major" in pax:
            self._pax_sparse(member, pax)
        return member

    def _header(self) -> bytes | None:
        block = self._take(BLOCK_BYTES)
        if not block or block == _END:
            return None
        if len(block) < BLOCK_BYTES:
            raise TarFault("it ends in the middle of a header")
        said = _number(block[148:156])
        total = sum(block) - sum(block[148:156]) + 8 * 32
        if said != total:
            signed = total - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
            if said != signed:
                raise TarFault("a header has the wrong checksum")
        return block

    def _extended(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_EXTENDED_BYTES:
            raise TarFault(f"an extended header has {size} bytes")
        data = self._take(-(-size // BLOCK_BYTES) * BLOCK_BYTES)
        if len(data) < size:
            raise TarFault("it ends in the middle of an extended header")
        return data[:size]

    def _old_sparse(self, member: TarEntry, header: bytes) -> None:
        numbers = _pairs(header[386:482])
        member.size_bytes = _number(header[483:495])
        more = header[482]
        while more:
            block = self._take(BLOCK_BYTES)
            if len(block) < BLOCK_BYTES or len(numbers) > _MAX_MAP:
                raise TarFault("the map of a sparse file does not end")
            numbers += _pairs(block[:504])
            more = block[504]
        _set_pieces(member, numbers)

    def _pax_sparse(self, member: TarEntry, pax: dict[str, str]) -> None:
        if "GNU.sparse.map" in pax:
            member.size_bytes = _decimal(pax, "GNU.sparse.size", member.size_bytes)
            numbers = [_whole(text) for text in pax["GNU.sparse.map"].split(",") if text]
            _set_pieces(member, numbers)
            return
        if (pax.get("GNU.sparse.major"), pax.get("GNU.sparse.minor")) != ("1", "0"):
            raise TarFault("a sparse file is of a form that is not known")
        member.size_bytes = _decimal(pax, "GNU.sparse.realsize", member.size_bytes)
        text, lines = b"", 1
        while text.count(b"\n") < lines:
            block = self._take(BLOCK_BYTES)
            self._left -= BLOCK_BYTES
            member.stored_bytes -= BLOCK_BYTES
            if len(block) < BLOCK_BYTES or member.stored_bytes < 0:
                raise TarFault("the map of a sparse file does not end")
            text += block
            if lines == 1 and b"\n" in text:
                lines = 1 + 2 * _whole(text.partition(b"\n")[0].decode(errors="replace"))
                if lines > _MAX_MAP:
                    raise TarFault("the map of a sparse file is too long")
        numbers = [_whole(line.decode(errors="replace")) for line in text.split(b"\n")[1:lines]]
        _set_pieces(member, numbers)

    def _take(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end of the stream."""
        if len(self._buffer) - self._at < size:
            parts = [self._buffer[self._at :]]
            have = len(parts[0])
            while have < size:
                part = self._stream.read(_CHUNK_BYTES)
                if not part:
                    break
                parts.append(part)
                have += len(part)
            self._buffer, self._at = b"".join(parts), 0
        data = self._buffer[self._at : self._at + size]
        self._at += len(data)
        return data

    def _skip(self, size: int) -> None:
        while size:
            have = len(self._buffer) - self._at
            if have:
                step = min(have, size)
                self._at += step
                size -= step
                continue
            self._buffer, self._at = self._stream.read(_CHUNK_BYTES), 0
            if not self._buffer:
                raise TarFault("it ends in the middle of a file")
        self._left = 0

    def _copy(self, size: int, out: BinaryIO) -> None:
        if size > self._left:
            raise TarFault("a file is longer than its data")
        self._left -= size
        while size:
            part = self._take(min(size, _CHUNK_BYTES))
            if not part:
                raise TarFault("it ends in the middle of a file")
            out.write(part)
            size -= len(part)


def _fill(size: int, out: BinaryIO) -> None:
    while size > 0:
        out.write(_ZEROS[:size])
        size -= _CHUNK_BYTES


def _set_pieces(member: TarEntry, numbers: list[int]) -> None:
    """Keep the map of a sparse file, if its pieces lie one after another within the file."""
    pieces = [SparsePiece(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=False) if pair[1]]
    at = 0
    for piece in pieces:
        if piece.offset < at or piece.size_bytes < 0:
            raise TarFault("the pieces of a sparse file overlap")
        at = piece.offset + piece.size_bytes
    if at > member.size_bytes or sum(piece.size_bytes for piece in pieces) > member.stored_bytes:
        raise TarFault("the pieces of a sparse file are longer than the file")
    member.pieces = pieces


def _pairs(data: bytes) -> list[int]:
    """Return offsets and sizes in turn of an old GNU map, without the entries that are not used."""
    used = (data[at : at + 24] for at in range(0, len(data) - 23, 24))
    return [_number(field) for pair in used if pair[0] for field in (pair[:12], pair[12:])]


def _pax_records(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    sparse: list[str] = []
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 20)
        digits = data[at:space] if space > 0 else b""
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not space < end <= len(data) or data[end - 1 : end] != b"\n" or not equals:
            raise TarFault("an extended header is damaged")
        name, text = key.decode(errors="replace"), value.decode("utf-8", "surrogateescape")
        if name in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            sparse.append(text)
        found[name] = text
        at = end
    if sparse:
        found["GNU.sparse.map"] = ",".join(sparse)
    return found


def _ustar_name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field, "big", signed=True) if field[0] == 0xFF else int.from_bytes(field[1:], "big")
    text = field.partition(b"\0")[0].strip()
    try:
        if not text or text.isdigit():
            return int(text or b"0", 8)
    except ValueError:
        pass
    raise TarFault("a number in a header is none")


def _decimal(pax: dict[str, str], key: str, default: int) -> int:
    return _whole(pax[key]) if key in pax else default


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise TarFault(f"a number in an extended header is none: {text[:40]!r}")
    return int(text)


def _seconds(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise TarFault(f"a time in an extended header is none: {text[:40]!r}") from None
