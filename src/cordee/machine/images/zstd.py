"""Layers compressed with zstd: by Python itself (3.14), by the package `zstandard`, else by the library libzstd."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Optional

from cordee.machine.images.errors import ImageError

if TYPE_CHECKING:
    from cordee.machine.images.byte_reader import ByteReader

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 1 << 20


class ZstdError(Exception):
    """What was given is no zstd, or damaged."""


def open_zstd(reader: ByteReader, given: str) -> Any:
    """Return a reader of what `reader` holds compressed.

    Raises:
        ImageError: nothing on this machine can read zstd.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd

        return _Package(zstd.ZstdFile(reader), zstd.ZstdError)
    try:
        import zstandard
    except ImportError:
        return _Stream(reader, given)
    stream = zstandard.ZstdDecompressor().stream_reader(reader, read_across_frames=True, closefd=False)
    return _Package(stream, zstandard.ZstdError)


@cache
def libzstd() -> Optional[ctypes.CDLL]:
    """Return the library; None: it is not installed. Who will be able to open no files calls this before."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        return None
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    return library


class _Package:
    """A package's reader, whose errors are told as ours."""

    def __init__(self, reader: Any, fault: type[Exception]) -> None:
        self._reader, self._fault = reader, fault

    def read(self, size: int = -1, /) -> bytes:
        try:
            data: bytes = self._reader.read(size)
        except self._fault as error:
            raise ZstdError(str(error)) from None
        return data

    def close(self) -> None:
        self._reader.close()


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer of zstd.h."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t)]


class _Stream:
    """Frames of zstd, one after another, by ZSTD_decompressStream."""

    def __init__(self, reader: ByteReader, given: str) -> None:
        library = libzstd()
        if library is None:
            raise ImageError(
                "a layer of the image is compressed with zstd, which nothing here can read",
                given=given,
                next="pip install 'cordee[zstd]', or install the library libzstd",
            )
        self._library, self._reader = library, reader
        self._stream = library.ZSTD_createDStream()
        self._given = b""
        self._in = _Buffer(None, 0, 0)
        self._whole = True  # whether a frame has ended here

    def read(self, size: int = -1, /) -> bytes:
        """Return some bytes, at most `size`; empty: the end."""
        most = size if 0 < size < _CHUNK_BYTES else _CHUNK_BYTES
        space = ctypes.create_string_buffer(most)
        out = _Buffer(ctypes.cast(space, ctypes.c_void_p), most, 0)
        while True:
            if self._in.at == self._in.size:
                self._given = self._reader.read(_CHUNK_BYTES)
                self._in = _Buffer(ctypes.cast(ctypes.c_char_p(self._given), ctypes.c_void_p), len(self._given), 0)
            before = self._in.at
            left = self._library.ZSTD_decompressStream(self._stream, ctypes.byref(out), ctypes.byref(self._in))
            if self._library.ZSTD_isError(left):
                raise ZstdError(self._library.ZSTD_getErrorName(left).decode())
            if self._in.at != before or out.at:
                self._whole = left == 0
            if out.at:
                return ctypes.string_at(space, out.at)
            if not self._given:
                if not self._whole:
                    raise ZstdError("it ends in the middle")
                return b""

    def close(self) -> None:
        if self._stream is not None:
            self._library.ZSTD_freeDStream(self._stream)
            self._stream = None
