"""Samples of a token set: pieces of one stream for pretraining, or whole documents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Union

from cordee.core.errors import DataError
from cordee.systems.data.node.read._base import Sample, SampleSource
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.tokens.files import TokenFile, TokenObject, open_tokens
from cordee.systems.data.node.read.tokens.index import Path, raw_token_index
from cordee.systems.data.node.read.tokens.store import open_token_index
from cordee.systems.data.node.read.tokens.windows import TokenWindows

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_AHEAD_SAMPLES = 4096


class TokenSource(SampleSource):
    """The tokens of a Megatron-LM `.bin`, read by position: no memory map, which parallel file systems serve page by page.

    Sample i holds the tokens from i * length to i * length + length, both included: inputs and targets of a language
    model, and its last token is the next sample's first. What is left at the end is too short for a sample and not given.

    Args:
        path: the `.bin` or `.idx`, the path or `s3://` address without an ending, or the folder of one set.
        length: tokens that a sample is trained on; it holds one more.
        documents: one sample for each document instead, as long as the document is.
        name: how people call it; default: the file's name.
        dtype: of the tokens of a `.bin` that has no `.idx`, as nanoGPT's: "uint16"; it has no documents then.

    Raises:
        DataError: there is none, or it has no sample of this length.
        CorruptDataError: as `open_token_index`.
    """

    ahead_samples = _AHEAD_SAMPLES

    def __init__(
        self, path: Path, length: int = 0, *, documents: bool = False, name: str = "", dtype: str = ""
    ) -> None:
        if documents == bool(length) or length < 0:
            raise DataError(
                "a token set is read in pieces of a length, or by documents",
                given=f"length={length}, documents={documents}",
                allowed="length=1024, or documents=True",
                next="say one of them: cordee.dataset(..., length=1024)",
            )
        if dtype and documents:
            raise DataError(
                "nothing says where documents begin: the tokens have no .idx",
                given=f"dtype={dtype!r}, documents=True",
                allowed="length=1024",
            )
        self.index = raw_token_index(path, dtype) if dtype else open_token_index(path)
        self.length = length
        self.name = name or os.path.basename(self.index.path)
        self.counts = ReadCounts()
        self._bounds = self.index.document_bounds() if documents else None
        self.size = self.index.documents if documents else max(0, self.index.tokens - 1) // length
        self.identity = f"tokens-{self.index.crc32:08x}-{self.index.tokens}-{length or 'documents'}"
        self._tokens: Union[TokenFile, TokenObject, None] = None
        self._windows: Optional[TokenWindows] = None
        self._process = 0
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
        _, windows = self._opened()
        begins, ends = self._bytes(numbers)
        self.counts.samples += len(numbers)
        found, counts = windows.take(begins, ends), ((ends - begins) // self.index.item_bytes).tolist()
        dtype = self.index.dtype
        if self._bounds is not None:
            parts = (
                numpy.frombuffer(answer() or bytes(8), dtype, count, start)
                for (answer, start), count in zip(found, counts)
            )
            return [{"tokens": part.astype(numpy.int64)} for part in parts]
        pieces = numpy.empty((len(numbers), self.length + 1), dtype)
        for piece, (answer, start) in zip(pieces, found):
            piece[:] = numpy.frombuffer(answer(), dtype, self.length + 1, start)
        return [{"tokens": piece} for piece in pieces.astype(numpy.int64)]

    def expect(self, samples: "Array") -> None:
        """Append to what is read next: near samples become one request, and a file system's kernel is told of them."""
        import numpy

        begins, ends = self._bytes(numpy.asarray(samples, numpy.int64).reshape(-1))
        tokens, windows = self._opened()
        windows.expect(begins, ends)
        tokens.advise(begins, ends)

    def describe(self, sample: int) -> str:
        """Return which tokens of which file a sample is."""
        begin, end = self._span(sample)
        return f"tokens {begin} to {end - 1} of {self.index.bin_path}"

    def close(self) -> None:
        """Give back the file and threads; the next read opens it anew."""
        if self._tokens is not None and self._process == os.getpid():
            self._tokens.close()
        self._tokens = self._windows = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokens": None, "_windows": None}

    def _opened(self) -> tuple[Union[TokenFile, TokenObject], TokenWindows]:
        """Return the file and what is expected of it; a forked copy begins anew, without the parent's threads."""
        if self._tokens is None or self._windows is None or self._process != os.getpid():
            self._tokens, self._process = open_tokens(self.index, self.counts), os.getpid()
            self._windows = TokenWindows(self._tokens.ask, self._tokens.shape)
        return self._tokens, self._windows

    def _span(self, samples: Any) -> tuple[Any, Any]:
        """Return the first token of a sample, or of several, and the one after its last."""
        if self._bounds is not None:
            return self._bounds[samples], self._bounds[samples + 1]
        return samples * self.length, samples * self.length + self.length + 1

    def _bytes(self, samples: "Array") -> "tuple[Array, Array]":
        begins, ends = self._span(samples)
        return begins * self.index.item_bytes, ends * self.index.item_bytes
