"""The blobs of an image: verified while they are read, decompressed as their first bytes say.

What is wrong is said of the blob, by its digest.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, BinaryIO

from cordee.core.units import format_size
from cordee.machine.images.byte_reader import ByteReader
from cordee.machine.images.errors import ImageError
from cordee.machine.images.sources import ImageSource
from cordee.machine.images.zstd import ZSTD_MAGIC, ZstdError, open_zstd

_CHUNK_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 16 << 20


class VerifiedReader:
    """Reads one blob and knows at its end whether it is the one that was named.

    Args:
        file, size_bytes: the blob, from where the file stands.
        name: what the blob is called in errors.
        digest: `sha256:...`; None: it is not verified here.
        expected_bytes: the length that the manifest says; None: not said.
    """

    def __init__(
        self, file: BinaryIO, size_bytes: int, *, name: str, given: str, digest: str | None, expected_bytes: int | None
    ) -> None:
        self._file, self._left, self._name, self._given = file, size_bytes, name, given
        self._digest, self._expected, self._size = digest, expected_bytes, size_bytes
        self._hash = hashlib.new(digest.partition(":")[0]) if digest else None

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes of the blob.

        Raises:
            ImageError: its end was reached, and it is not the blob that was named.
        """
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        if self._hash:
            self._hash.update(data)
        if not data and self._left:
            raise self._wrong(f"is cut off: {format_size(self._size - self._left)} of {format_size(self._size)}")
        if not self._left:
            self._judge()
        return data

    def finish(self) -> None:
        """Read what is left.

        Raises:
            ImageError: it is not the blob that was named.
        """
        self._judge()
        while self.read(_CHUNK_BYTES):
            pass
        self._judge()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _judge(self) -> None:
        if self._expected is not None and self._size != self._expected:
            how = "is cut off" if self._size < self._expected else "is longer than it should be"
            raise self._wrong(f"{how}: {format_size(self._size)} of {format_size(self._expected)}")
        if self._hash and self._digest and not self._left:
            found = f"{self._hash.name}:{self._hash.hexdigest()}"
            if found != self._digest:
                raise self._wrong(f"is damaged: what is there has the digest {found}")

    def _wrong(self, text: str) -> ImageError:
        return ImageError(f"{self._name} {text}", given=self._given, next="copy, download or save the image again")


def open_blob(source: ImageSource, digest: str, expected_bytes: int | None, what: str) -> VerifiedReader:
    """Return the reader of a blob of an OCI layout; `what` is it in the image (`layer 2 of 3`).

    Raises:
        ImageError: it is not there.
    """
    algorithm, _, number = digest.partition(":")
    name = f"{what} ({digest[:19]}...)"
    try:
        file, size = source.open(f"blobs/{algorithm}/{number}")
    except KeyError:
        raise ImageError(
            f"{name} is missing", given=source.given, next="copy, download or save the image again"
        ) from None
    return VerifiedReader(file, size, name=name, given=source.given, digest=digest, expected_bytes=expected_bytes)


def read_all(reader: VerifiedReader, what: str, given: str) -> bytes:
    """Return the whole of a small blob, verified.

    Raises:
        ImageError: it is damaged, or far longer than such a document is.
    """
    try:
        data = reader.read(_MAX_DOCUMENT_BYTES)
        if len(data) == _MAX_DOCUMENT_BYTES:
            raise ImageError(f"{what} is longer than {format_size(_MAX_DOCUMENT_BYTES)}", given=given)
        reader.finish()
        return data
    finally:
        reader.close()


class LayerStream:
    """The tar stream of a layer, decompressed as its first bytes say.

    Args:
        blob: the layer as it is stored.
        diff_id: the digest of the stream itself, verified where the blob's is not known.
        what: the layer in errors (`layer 2 of 3`).
    """

    def __init__(self, blob: VerifiedReader, *, what: str, given: str, diff_id: str | None = None) -> None:
        self._blob, self.what, self.given, self._diff_id = blob, what, given, diff_id
        self._hash = hashlib.new(diff_id.partition(":")[0]) if diff_id else None
        first = blob.read(4)
        whole = _Pushed(first, blob)
        self._inner: Any = whole
        if first.startswith(b"\x1f\x8b"):
            self._inner = _Gunzip(whole)
        elif first == ZSTD_MAGIC:
            self._inner = open_zstd(whole, given)

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes of the stream.

        Raises:
            ImageError: the blob is damaged.
        """
        try:
            data: bytes = self._inner.read(size)
        except (zlib.error, EOFError, ZstdError) as error:
            raise self.fault(f"cannot be decompressed: {error}") from None
        except OSError as error:
            raise ImageError(f"{self.what} cannot be read: {error.strerror or error}", given=self.given) from None
        if self._hash:
            self._hash.update(data)
        return data

    def finish(self) -> None:
        """Read to the end.

        Raises:
            ImageError: the blob is damaged.
        """
        while self.read(_CHUNK_BYTES):
            pass
        self._blob.finish()
        if self._hash and f"{self._hash.name}:{self._hash.hexdigest()}" != self._diff_id:
            raise ImageError(f"{self.what} is damaged: it has another digest", given=self.given)

    def fault(self, text: str) -> ImageError:
        """Return the error for what is wrong in the stream; damage of the blob explains it better, if there is any."""
        try:
            self._blob.finish()
        except ImageError as damage:
            return damage
        return ImageError(f"{self.what} {text}", given=self.given)

    def close(self) -> None:
        """End what decompresses, and close the blob."""
        if self._inner is not self._blob and hasattr(self._inner, "close"):
            self._inner.close()
        self._blob.close()


class _Pushed:
    """A reader whose first bytes have been looked at."""

    def __init__(self, first: bytes, rest: ByteReader) -> None:
        self._first, self._rest = first, rest

    def read(self, size: int = -1, /) -> bytes:
        if self._first:
            data, self._first = self._first, b""
            if 0 <= size < len(data):
                data, self._first = data[:size], data[size:]
            return data
        return self._rest.read(size)


class _Gunzip:
    """Decompresses gzip, of several parts too; `gzip.GzipFile` takes twice as long."""

    def __init__(self, reader: ByteReader) -> None:
        self._reader = reader
        self._part: Any = None
        self._waiting = b""

    def read(self, size: int = -1, /) -> bytes:
        """Return some bytes, at most `size`; empty: the end."""
        most = size if 0 < size < _CHUNK_BYTES else _CHUNK_BYTES
        while True:
            if not self._waiting:
                self._waiting = self._reader.read(_CHUNK_BYTES // 4)
                if not self._waiting:
                    if self._part is not None:
                        raise EOFError("it ends in the middle")
                    return b""
            if self._part is None:
                self._waiting = self._waiting.lstrip(b"\0")  # padding between parts, as of tapes
                if not self._waiting:
                    continue
                self._part = zlib.decompressobj(wbits=31)
            data: bytes = self._part.decompress(self._waiting, most)
            self._waiting = self._part.unconsumed_tail or self._part.unused_data
            if self._part.eof:
                self._part = None
            if data:
                return data
