"""Samples of a token set: pieces of one stream for pretraining, or whole documents."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator

from cordee.data.read._base import Sample, Source
from cordee.data.read.counting import Counts
from cordee.data.read.token_index import Path, open_token_index
from cordee.errors import CorruptDataError, DataError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# Ranges that are so near to each other are one request of read-ahead, of at most this size.
_NEAR_BYTES = 64 << 10
_MOST_BYTES = 16 << 20
# The kernel takes no more of one advice than the device's largest request (mm/readahead.c, force_page_cache_ra).
_ADVICE_BYTES = 512 << 10


class TokenSource(Source):
    """The tokens of a Megatron-LM `.bin`, read by position: no memory map, which parallel file systems serve page by page.

    Sample i holds the tokens from i * length to i * length + length, both included: inputs and targets of a language
    model, and its last token is the next sample's first. What is left at the end is too short for a sample and not given.

    Args:
        path: the `.bin` or `.idx`, the path without an ending, or the folder of one set.
        length: tokens that a sample is trained on; it holds one more.
        documents: one sample for each document instead, as long as the document is.
        name: how people call it; default: the file's name.

    Raises:
        DataError: there is none, or it has no sample of this length.
        CorruptDataError: as `open_token_index`.
    """

    def __init__(self, path: Path, length: int = 0, *, documents: bool = False, name: str = "") -> None:
        if documents == bool(length) or length < 0:
            raise DataError(
                "a token set is read in pieces of a length, or by documents",
                given=f"length={length}, documents={documents}",
                allowed="length=1024, or documents=True",
                next="say one of them: cordee.dataset(..., length=1024)",
            )
        self.index = open_token_index(path)
        self.length = length
        self.name = name or os.path.basename(self.index.path)
        self.counts = Counts()
        self._bounds = self.index.document_bounds() if documents else None
        self.size = self.index.documents if documents else max(0, self.index.tokens - 1) // length
        self.identity = f"tokens-{self.index.crc32:08x}-{self.index.tokens}-{length or 'documents'}"
        self._file, self._owner = -1, -1
        if not self.size:
            raise DataError(
                "the token set has no sample of this length",
                given=f"{self.index.bin_path}: {self.index.tokens} tokens, length={length}",
                allowed=f"1 <= length <= {max(1, self.index.tokens - 1)}",
            )

    def read(self, samples: "Array") -> list[Sample]:
        """Return `{"tokens": int64[length + 1]}` for each sample, or as long as the document is."""
        import numpy

        numbers = numpy.asarray(samples, numpy.int64).reshape(-1)
        self.counts.samples += len(numbers)
        if self._bounds is None:
            return [{"tokens": piece} for piece in self._pieces(numbers)]
        bounds = zip(self._bounds[numbers].tolist(), self._bounds[numbers + 1].tolist())
        return [{"tokens": self._tokens(begin, end - begin).astype(numpy.int64)} for begin, end in bounds]

    def expect(self, samples: "Array") -> None:
        """Have the kernel read what comes next, in the file's order, while the training works."""
        import numpy

        if not hasattr(os, "posix_fadvise"):
            return
        numbers = numpy.unique(numpy.asarray(samples, numpy.int64))
        if self._bounds is not None:
            begins, ends = self._bounds[numbers], self._bounds[numbers + 1]
        else:
            begins, ends = numbers * self.length, numbers * self.length + self.length + 1
        size = self.index.item_bytes
        # A copy of the descriptor, because this one may be closed meanwhile.
        ranges, file = list(_merged(begins * size, ends * size)), os.dup(self._open())
        threading.Thread(target=_advise, args=(file, ranges), daemon=True).start()

    def describe(self, sample: int) -> str:
        """Return which tokens of which file a sample is."""
        if self._bounds is not None:
            begin, end = int(self._bounds[sample]), int(self._bounds[sample + 1])
        else:
            begin, end = sample * self.length, sample * self.length + self.length + 1
        return f"tokens {begin} to {end - 1} of {self.index.bin_path}"

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0 and self._owner == os.getpid():
            os.close(self._file)
        self._file = -1

    def _open(self) -> int:
        if self._file < 0 or self._owner != os.getpid():
            try:
                self._file = os.open(self.index.bin_path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise self._failed(error) from None
            self._owner = os.getpid()
            self.counts.opens += 1
        return self._file

    def _pieces(self, numbers: "Array") -> "Array":
        """Return int64[n, length + 1]: samples that follow one another are read at once."""
        import numpy

        width, item_bytes, row = self.length + 1, self.index.item_bytes, 0
        pieces = numpy.empty((len(numbers), width), self.index.dtype)
        for first, count in _runs(numbers, max(1, _MOST_BYTES // (self.length * item_bytes))):
            if count == 1:
                self._read(first * self.length, pieces[row])
            else:
                tokens = self._tokens(first * self.length, count * self.length + 1)
                overlapping = (count, width), (self.length * item_bytes, item_bytes)
                pieces[row : row + count] = numpy.lib.stride_tricks.as_strided(tokens, *overlapping)
            row += count
        return pieces.astype(numpy.int64)

    def _tokens(self, begin: int, count: int) -> "Array":
        """Return `count` tokens from token `begin` on."""
        import numpy

        tokens = numpy.empty(count, self.index.dtype)
        if count:
            self._read(begin, tokens)
        return tokens

    def _read(self, begin: int, tokens: "Array") -> None:
        """Fill an array with the tokens from token `begin` on."""
        buffer, taken = tokens.view("u1").data, 0
        offset, file, began = begin * self.index.item_bytes, self._open(), time.perf_counter()
        while taken < len(buffer):
            try:
                more = os.preadv(file, [buffer[taken:]], offset + taken)
            except OSError as error:
                raise self._failed(error) from None
            if not more:
                raise CorruptDataError(
                    "the tokens end before their index says so",
                    given=f"{self.index.bin_path}, byte {offset + taken}",
                    allowed=f"{self.index.tokens * self.index.item_bytes} bytes",
                    next="the file was cut off while it was read; copy it again from where it was packed",
                )
            taken += more
        self.counts.request(taken, time.perf_counter() - began)

    def _failed(self, error: OSError) -> DataError:
        return DataError(
            f"the tokens cannot be read: {error.strerror}",
            given=self.index.bin_path,
            next="see whether the file system is well; the training goes on from its checkpoint",
        )


def _runs(numbers: "Array", most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, how many) of samples that follow one another, `most` at a time."""
    import numpy

    breaks = numpy.flatnonzero(numpy.diff(numbers) != 1) + 1
    for part in numpy.split(numbers, breaks) if len(numbers) else []:
        for begin in range(0, len(part), most):
            yield int(part[begin]), min(most, len(part) - begin)


def _merged(begins: "Array", ends: "Array") -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of sorted ranges, near ones as one."""
    offset = until = -1
    for begin, end in zip(begins.tolist(), ends.tolist()):
        if until >= 0 and begin - until <= _NEAR_BYTES and end - offset <= _MOST_BYTES:
            until = max(until, end)
            continue
        if until >= 0:
            yield offset, until - offset
        offset, until = begin, end
    if until >= 0:
        yield offset, until - offset


def _advise(file: int, ranges: list[tuple[int, int]]) -> None:
    try:
        for begin, size in ranges:
            for offset in range(begin, begin + size, _ADVICE_BYTES):
                os.posix_fadvise(file, offset, min(_ADVICE_BYTES, begin + size - offset), os.POSIX_FADV_WILLNEED)
    except OSError:
        return  # only advice: the read itself says what is wrong
    finally:
        os.close(file)
