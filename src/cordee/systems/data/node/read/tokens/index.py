"""The index of a token set: Megatron-LM's `.idx` beside a `.bin`, which its own and many other trainers read and write.

Layout, little endian, as in megatron/core/datasets/indexed_dataset.py: `MMIDIDX` and two zero bytes, u64 version 1, u8 code of
the tokens' type, u64 sequences S, u64 document bounds D, then

    lengths    i4[S]   tokens of each sequence
    pointers   i8[S]   byte of the `.bin` where each begins
    documents  i8[D]   first sequence of each document, and at the end S
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Iterable, Iterator, NoReturn, Optional, Union

from cordee.core.errors import CorruptDataError, DataError
from cordee.machine.foreign_files import regular

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_NO_TOKENS = {6: "float64", 7: "float32"}
_HEAD = struct.Struct("<9sQBQQ")
_CHUNK = 1 << 20

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class TokenIndex:
    """What an `.idx` says of its `.bin`.

    Attributes:
        path: of the set, without `.bin` and `.idx`.
        dtype: of a token, as NumPy writes it.
        tokens: in all; the sequences lie one behind the other.
        sequences, documents: how many.
        crc32: of all that the `.idx` holds.
        copy: of the `.idx` on this machine, where the set lies in an object store.
    """

    path: str
    dtype: str
    item_bytes: int
    tokens: int
    sequences: int
    documents: int
    crc32: int
    copy: str = ""

    @property
    def bin_path(self) -> str:
        return self.path + ".bin"

    @property
    def idx_path(self) -> str:
        return self.copy or self.path + ".idx"

    def document_bounds(self) -> "Array":
        """Return int64[documents + 1]: the token where each document begins, and the end of the last."""
        import numpy

        with open(self.idx_path, "rb", opener=regular) as file:
            file.seek(_HEAD.size)
            lengths = numpy.fromfile(file, "<i4", self.sequences)
            file.seek(8 * self.sequences, os.SEEK_CUR)
            first = numpy.fromfile(file, "<i8", self.documents + 1)
        ends: "Array" = numpy.zeros(self.sequences + 1, numpy.int64)
        numpy.cumsum(lengths, out=ends[1:], dtype=numpy.int64)
        bounds: "Array" = ends[first]
        return bounds


def find_token_set(path: Path) -> Optional[str]:
    """Return the path of a token set without its endings, None where none is.

    Args:
        path: its `.bin` or `.idx`, the path without the ending, or a folder that holds one set.

    Raises:
        DataError: the folder holds several.
    """
    given = os.fspath(path)
    for ending in (".bin", ".idx"):
        if given.endswith(ending) and os.path.isfile(given[: -len(ending)] + ".idx"):
            return given[: -len(ending)]
    if os.path.isfile(given + ".idx"):
        return given
    if not os.path.isdir(given):
        return None
    return only_set(given, os.listdir(given))


def only_set(folder: str, names: Iterable[str]) -> Optional[str]:
    """Return the path of the one token set among the names in a folder, None where none is.

    Raises:
        DataError: there are several.
    """
    there = set(names)
    sets = sorted(name[:-4] for name in there if name.endswith(".idx") and name[:-4] + ".bin" in there)
    if len(sets) > 1:
        raise DataError(
            "the folder holds several token sets",
            given=folder,
            allowed=[os.path.join(folder, name) for name in sets],
            next="name one of them; `cordee.dataset({one: 0.7, another: 0.3}, ...)` mixes several",
        )
    return os.path.join(folder, sets[0]) if sets else None


def raw_token_index(path: Path, dtype: str) -> TokenIndex:
    """Return what is known of tokens that have no `.idx`, as nanoGPT's `train.bin`: one sequence, as long as the file.

    Args:
        path: of the `.bin`.
        dtype: of a token: "uint16", ...

    Raises:
        DataError: there is no such file or type, it is no whole number of tokens, or it has an `.idx`.
    """
    import numpy

    given = os.fspath(path)
    names = {numpy.dtype(name).name: name for name in DTYPES.values()}
    if dtype not in names:
        raise DataError("tokens have no such type", given=f"dtype={dtype!r}", allowed=list(names))
    if not given.endswith(".bin") or os.path.exists(given[:-4] + ".idx"):
        raise DataError(
            "the type of tokens is given of a .bin alone: where there is an .idx it says the type",
            given=f"{given}, dtype={dtype!r}",
            allowed="the path of a .bin without .idx",
            next="leave dtype out",
        )
    item_bytes = numpy.dtype(dtype).itemsize
    try:
        with open(given, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            crc32 = zlib.crc32(file.read(_CHUNK))
            file.seek(max(0, size - _CHUNK))
            crc32 = zlib.crc32(file.read(_CHUNK), crc32)
    except OSError as error:
        raise unreadable(f"the tokens cannot be read: {error.strerror}", given) from None
    if size % item_bytes:
        raise DataError(
            "the file is no whole number of tokens",
            given=f"{given}: {size} bytes",
            allowed=f"multiples of {item_bytes}",
        )
    return TokenIndex(given[:-4], names[dtype], item_bytes, size // item_bytes, 1, 0, crc32)


def check_size(index: TokenIndex, size: int) -> None:
    """Compare the bytes of a `.bin` with its index.

    Raises:
        CorruptDataError: they do not belong together.
    """
    if size != index.tokens * index.item_bytes:
        what = "cut off" if size < index.tokens * index.item_bytes else "longer than its index says"
        raise CorruptDataError(
            f"the tokens are {what}, or the index is that of other tokens",
            given=f"{index.bin_path}: {size} bytes",
            allowed=f"{index.tokens * index.item_bytes} bytes, as {index.path}.idx says",
            next="copy both files again from where they were packed",
        )


def write_token_index(path: Path, dtype: str, lengths: "Array") -> None:
    """Write an `.idx`, durably and under its final name only when it is whole; each sequence is a document.

    Args:
        path: of the `.idx`.
        dtype: of the tokens, one of DTYPES.
        lengths: tokens of each document, int64[n].

    Raises:
        OSError: it could not be written.
    """
    import numpy

    code = next(code for code, name in DTYPES.items() if name == dtype)
    pointers = numpy.zeros(len(lengths), "<i8")
    numpy.cumsum(lengths[:-1] * numpy.dtype(dtype).itemsize, out=pointers[1:])
    partial = os.fspath(path) + ".partial"
    with open(partial, "wb") as file:
        file.write(_HEAD.pack(MAGIC, VERSION, code, len(lengths), len(lengths) + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write(pointers.tobytes())
        file.write(numpy.arange(len(lengths) + 1, dtype="<i8").tobytes())
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)


def read_token_index(file: IO[bytes], path: str) -> TokenIndex:
    """Read an open `.idx` as a whole, without looking at its `.bin`.

    Args:
        path: of the set, without an ending.

    Raises:
        CorruptDataError: as `open_token_index`.
    """
    import numpy

    head = file.read(_HEAD.size)
    if head[: len(MAGIC)] != MAGIC:
        _refuse("it does not begin as Megatron-LM's do", path, given=repr(head[: len(MAGIC)]))
    if len(head) < _HEAD.size:
        _refuse("it is cut off", path)
    _, version, code, sequences, bounds = _HEAD.unpack(head)
    if version != VERSION:
        _refuse("its version is another one", path, given=f"version {version}", allowed=f"version {VERSION}")
    if code not in DTYPES:
        _refuse(f"its type of tokens is {_NO_TOKENS.get(code, 'unknown')}", path, given=f"code {code}")
    least = _HEAD.size + 12 * sequences + 8 * bounds
    size = os.fstat(file.fileno()).st_size
    if size < least:
        _refuse(f"it is cut off: {least - size} bytes are missing", path)
    item_bytes, crc32 = numpy.dtype(DTYPES[code]).itemsize, zlib.crc32(head)
    lengths_at, pointers_at = _HEAD.size, _HEAD.size + 4 * sequences
    tokens = 0
    for begin in range(0, sequences, _CHUNK):
        count = min(_CHUNK, sequences - begin)
        file.seek(lengths_at + 4 * begin)
        lengths = numpy.fromfile(file, "<i4", count)
        file.seek(pointers_at + 8 * begin)
        pointers = numpy.fromfile(file, "<i8", count)
        ends = tokens + numpy.cumsum(lengths, dtype=numpy.int64)
        if lengths.min() < 0 or (pointers != (ends - lengths) * item_bytes).any():
            _refuse("its sequences do not lie one behind the other", path)
        tokens = int(ends[-1])
        crc32 = zlib.crc32(pointers.data, zlib.crc32(lengths.data, crc32))
    file.seek(pointers_at + 8 * sequences)
    last = -1
    for part in _parts(file, "<i8", bounds):
        if (numpy.diff(part, prepend=max(last, 0)) < 0).any():
            _refuse("its documents are not in order", path)
        last, crc32 = int(part[-1]), zlib.crc32(part.data, crc32)
    if sequences and last != sequences:
        _refuse("its documents do not end with its sequences", path)
    return TokenIndex(path, DTYPES[code], item_bytes, tokens, sequences, max(0, bounds - 1), crc32)


def _parts(file: IO[bytes], dtype: str, count: int) -> Iterator["Array"]:
    import numpy

    for begin in range(0, count, _CHUNK):
        yield numpy.fromfile(file, dtype, min(_CHUNK, count - begin))


def unreadable(what: str, path: str) -> DataError:
    """Return the error for a token set that is not there, or cannot be read."""
    return DataError(
        what,
        given=path,
        allowed="NAME.bin and NAME.idx as Megatron-LM has them, named with or without their ending",
        next="`cordee data pack TEXT --as tokens` makes them",
    )


def _refuse(why: str, path: str, given: str = "", allowed: str = "") -> NoReturn:
    raise CorruptDataError(
        f"the index of the tokens cannot be used: {why}",
        given=f"{path}.idx" + (f": {given}" if given else ""),
        allowed=allowed or "Megatron-LM's .idx of whole numbers, version 1",
        next="copy it again from where it was packed, or pack the text again: `cordee data pack TEXT --as tokens`",
    )
