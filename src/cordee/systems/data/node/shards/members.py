"""Members of tar files: headers written as GNU tar and Python's tarfile read them, and read whoever wrote them.

A header is a ustar block; a pax record goes before it where the name is long or no UTF-8, or 8 GiB are reached. A member
that could not keep the name of its file (WebDataset needs `KEY.field`) has that name in the pax record CORDEE.name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Dict, Iterator, Optional, Tuple
from zlib import adler32

from cordee.core.errors import CorruptDataError

BLOCK = 512
END = bytes(2 * BLOCK)
ORIGINAL_NAME = b"CORDEE.name"
_LARGEST_OCTAL = 8**11 - 1
_MOST_PAX_BYTES = 64 << 20
_REGULAR, _FOLDER = b"0", b"5"


@dataclass(frozen=True)
class TarMember:
    """One member of a tar file, as its headers say.

    Attributes:
        name: as any reader sees it.
        original: the name that its file had, where that is another one.
        start: where its first header begins. offset: where its bytes begin. length: how many.
        kind: `file`, `folder`, `sparse` (a file stored with holes, which no reader by offset can read), `hard link` or `other`.
        link: of a hard link, the member that it is another name of.
        is_label: packing added it for other readers of WebDataset: the label, which the index has in a column of its own.
    """

    name: bytes
    original: Optional[bytes]
    start: int
    offset: int
    length: int
    kind: str
    is_label: bool = False
    link: Optional[bytes] = None

    @property
    def end(self) -> int:
        """Return where the next header begins."""
        return self.offset + padded(self.length)


def padded(length: int) -> int:
    """Return a length rounded up to whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


def _template(kind: bytes, mode: bytes) -> Tuple[bytes, int]:
    block = bytearray(BLOCK)
    block[100:108] = mode
    block[108:124] = b"0000000\0" * 2  # owner and group: nobody's in particular
    block[136:148] = b"00000000000\0"  # modification time: 1970, so that equal files give equal shards
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    return bytes(block), sum(block)


_FILE, _FILE_SUM = _template(_REGULAR, b"0000644\0")
_LABEL_OWNER = b"cordee.label"
_LABEL = _FILE[:265] + _LABEL_OWNER + _FILE[265 + len(_LABEL_OWNER) :]
_100_124, _136_148, _FILE_156 = _FILE[100:124], _FILE[136:148], _FILE[156:]


def header(name: bytes, length: int, original: Optional[bytes] = None) -> bytes:
    """Return the header blocks of a file: 512 bytes where name and length fit a ustar block, else with a pax record."""
    if len(name) <= 100 and length <= _LARGEST_OCTAL and original is None and name.isascii():
        size = b"%011o\0" % length
        # Adler-32's lower half is one more than the sum of so few bytes.
        check = b"%06o\0 " % (_FILE_SUM + (adler32(name + size) & 0xFFFF) - 1)
        return b"".join((name.ljust(100, b"\0"), _100_124, size, _136_148, check, _FILE_156))
    return _long_header(name, length, original, _FILE)


def label_member(key: bytes, label: int) -> bytes:
    """Return header and bytes of `KEY.cls`, a label for readers without the index: its owner's name says that it is one."""
    name = key + b".cls"
    if len(name) > 100 or not name.isascii():
        text = b"%d" % label
        return _long_header(name, len(text), None, _LABEL) + text.ljust(BLOCK, b"\0")
    before, total, after = _label_parts(label)
    return b"%b%b%06o%b" % (name.ljust(100, b"\0"), before, total + (adler32(name) & 0xFFFF) - 1, after)


@lru_cache(maxsize=65536)
def _label_parts(label: int) -> Tuple[bytes, int, bytes]:
    """Return what stands between name and check sum, the sum of all but the name, and what stands behind."""
    text = b"%d" % label
    block = bytearray(_LABEL)
    block[124:136] = b"%011o\0" % len(text)
    return bytes(block[100:148]), sum(block), b"\0 " + bytes(block[156:]) + text.ljust(BLOCK, b"\0")


def folder_header(name: bytes) -> bytes:
    """Return the header blocks of a folder."""
    return _long_header(name.rstrip(b"/") + b"/", 0, None, _template(_FOLDER, b"0000755\0")[0])


def header_bytes(name: bytes, length: int, original: Optional[bytes] = None) -> int:
    """Return how long `header` is."""
    if len(name) <= 100 and length <= _LARGEST_OCTAL and original is None and name.isascii():
        return BLOCK
    return len(_long_header(name, length, original, _FILE))


def _long_header(name: bytes, length: int, original: Optional[bytes], template: bytes) -> bytes:
    records: Dict[bytes, bytes] = {}
    prefix, short = _split(name)
    if short is None or not _is_utf8(name):
        records[b"path"] = name
        prefix, short = (prefix, short) if short is not None else (b"", name[:100])
    if length > _LARGEST_OCTAL:
        records[b"size"] = b"%d" % length
    if original is not None:
        records[ORIGINAL_NAME] = original
    if not all(_is_utf8(value) for value in records.values()):
        records = {b"hdrcharset": b"BINARY", **records}
    size = length if length <= _LARGEST_OCTAL else 0
    before = b""
    if records:
        text = b"".join(_record(key, value) for key, value in records.items())
        pax = _block(b"", b"./PaxHeaders/" + short[-80:].replace(b"/", b"_"), len(text), _pax_template())
        before = pax + text.ljust(padded(len(text)), b"\0")
    return before + _block(prefix, short, size, template)


def _pax_template() -> bytes:
    return _template(b"x", b"0000644\0")[0]


def _block(prefix: bytes, name: bytes, size: int, template: bytes) -> bytes:
    block = bytearray(template)
    block[: len(name)] = name
    block[124:136] = b"%011o\0" % size
    block[345 : 345 + len(prefix)] = prefix
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _split(name: bytes) -> Tuple[bytes, Optional[bytes]]:
    """Return the name as ustar's prefix and name; None as the name where it does not fit."""
    if len(name) <= 100:
        return b"", name
    slash = name.rfind(b"/", 0, 156)
    if slash <= 0 or not 0 < len(name) - slash - 1 <= 100:
        return b"", None
    return name[:slash], name[slash + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    """Return `LENGTH KEY=VALUE\\n`, whose length counts itself."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    if len(str(length)) != len(str(rest)):
        length += 1
    return b"%d %s=%s\n" % (length, key, value)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# Reads (length, offset): fewer bytes only at the end of the file.
Read = Callable[[int, int], bytes]


class Damaged(Exception):
    """A tar file is not one from `offset` on; whoever reads it says which file."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset
        self.reason = reason


def members(read: Read, size: int) -> Iterator[TarMember]:
    """Yield the members of a tar file of `size` bytes, reading headers only.

    Raises:
        Damaged: a header is damaged, or the file is cut off.
        OSError: it cannot be read.
    """
    start = 0
    shared: Dict[bytes, bytes] = {}
    while True:
        found = member_at(read, start, size, shared)
        if found is None:
            return
        yield found
        start = found.end


def member_at(read: Read, start: int, size: int, shared: Optional[Dict[bytes, bytes]] = None) -> Optional[TarMember]:
    """Return the member whose first header is at `start`; None at the end of the archive.

    Args:
        size: of the file. shared: pax records that hold for all members; they are kept there.
    """
    own: Dict[bytes, bytes] = {}
    begin = start
    while True:
        block = read(BLOCK, start)
        if len(block) < BLOCK:
            if not block and start == begin and start == size:
                return None  # no zero blocks at its end: old writers leave them out
            raise Damaged(start, "the file is cut off")
        if block[0] == 0 and not any(block):
            return None
        length, kind = _checked(block, start)
        if kind not in (b"x", b"g", b"L", b"K"):
            return _member(
                block, begin, _behind_map(read, block, kind, start), length, kind, {**(shared or {}), **own}, size
            )
        if length > _MOST_PAX_BYTES:
            raise Damaged(start, f"a header claims {length} bytes")
        text = read(length, start + BLOCK)
        if len(text) < length:
            raise Damaged(start, "the file is cut off")
        if kind == b"L":
            own[b"path"] = text.rstrip(b"\0")
        elif kind == b"K":
            own[b"linkpath"] = text.rstrip(b"\0")
        else:
            target = shared if kind == b"g" and shared is not None else own
            target.update(_records(text, start))
        start += BLOCK + padded(length)


def _behind_map(read: Read, block: bytes, kind: bytes, start: int) -> int:
    """Return where the last header block of a member is: GNU's old form of holes has a map in blocks behind the first."""
    more = kind == b"S" and block[482] != 0
    while more:
        start += BLOCK
        more = read(BLOCK, start)[504:505] not in (b"", b"\0")
    return start


def _member(
    block: bytes, begin: int, start: int, length: int, kind: bytes, pax: Dict[bytes, bytes], size: int
) -> TarMember:
    is_sparse = kind == b"S" or any(key.startswith(b"GNU.sparse.") for key in pax)
    name = pax.get(b"GNU.sparse.name", pax.get(b"path"))
    if name is None:
        name = block[:100].partition(b"\0")[0]
        prefix = block[345:500].partition(b"\0")[0]
        if prefix and block[257:263] == b"ustar\0":
            name = prefix + b"/" + name
    if b"size" in pax:
        length = int(pax[b"size"])
    is_file = kind in (b"0", b"\0", b"7")
    is_folder = kind == b"5" or (is_file and name.endswith(b"/"))
    if not is_file:
        length = 0 if kind in (b"1", b"2", b"3", b"4", b"5", b"6") else length
    if start + BLOCK + length > size:
        raise Damaged(start, f"the file is cut off: {start + BLOCK + length - size} bytes are missing")
    what = "sparse" if is_sparse else "folder" if is_folder else "file" if is_file else "other"
    link = None
    if kind == b"1":
        what, link = "hard link", pax.get(b"linkpath", block[157:257].partition(b"\0")[0])
    is_label = block[265 : 265 + len(_LABEL_OWNER)] == _LABEL_OWNER
    return TarMember(name, pax.get(ORIGINAL_NAME), begin, start + BLOCK, length, what, is_label, link)


def _checked(block: bytes, start: int) -> Tuple[int, bytes]:
    """Return length and kind of a header block whose check sum is right."""
    try:
        check = int(block[148:156].strip(b" \0") or b"0", 8)
        if block[124] & 0x80:
            length = int.from_bytes(bytes([block[124] & 0x7F]) + block[125:136], "big")
        else:
            length = int(block[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise Damaged(start, "a header is damaged") from None
    # Adler-32's lower half is one more than the sum of so few bytes.
    total = (adler32(block[:256]) & 0xFFFF) + (adler32(block[256:]) & 0xFFFF) - 2
    if check != total - sum(block[148:156]) + 8 * 32:
        raise Damaged(start, "a header is damaged")
    return length, block[156:157]


def _records(text: bytes, start: int) -> Dict[bytes, bytes]:
    found: Dict[bytes, bytes] = {}
    position = 0
    while position < len(text) and text[position] != 0:
        space = text.find(b" ", position)
        try:
            length = int(text[position:space])
        except ValueError:
            raise Damaged(start, "a pax header is damaged") from None
        record = text[space + 1 : position + length]
        key, equals, value = record.partition(b"=")
        if length <= 0 or not equals or not record.endswith(b"\n"):
            raise Damaged(start, "a pax header is damaged")
        found[key] = value[:-1]
        position += length
    return found


def corrupt(path: str, fault: Damaged) -> CorruptDataError:
    """Return the error about a shard that is no whole tar file."""
    return CorruptDataError(
        f"the shard is damaged: {fault.reason}",
        given=f"{path}, byte {fault.offset}",
        next="copy it again from where it was packed; `cordee data verify` names every damaged sample",
    )
