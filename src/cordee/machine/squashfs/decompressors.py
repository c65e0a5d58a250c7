"""What unpacks the blocks of squashfs files: Python's own modules, a package, else the libraries that squashfs-tools stand on."""

from __future__ import annotations

import ctypes
import lzma
import zlib
from typing import Any, Callable, Optional

from cordee.machine.images.zstd import libzstd

# Returns at most so many bytes; raises ValueError for what is damaged or longer.
Decompress = Callable[[bytes, int], bytes]
_LZMA_BYTES = 128 << 20


def decompressor(name: str) -> Optional[Decompress]:
    """Return what unpacks one block of a compression by its name in the superblock; None: nothing here can."""
    if name == "gzip":
        return _by_machine(zlib.decompressobj)
    if name == "xz":
        return _by_machine(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_BYTES))
    if name == "lzma":
        return _by_machine(lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, _LZMA_BYTES))
    return _zstd() if name == "zstd" else _lz4() if name == "lz4" else None


def _by_machine(make: Callable[[], Any]) -> Decompress:
    def unpack(data: bytes, most: int) -> bytes:
        try:
            content: bytes = make().decompress(data, most + 1)
        except (zlib.error, lzma.LZMAError, EOFError, MemoryError) as error:
            raise ValueError(f"a block cannot be decompressed: {error}") from None
        if len(content) > most:
            raise ValueError("a block is longer than it says")
        return content

    return unpack


def _zstd() -> Optional[Decompress]:
    library = libzstd()
    if library is None:
        return _zstandard()

    def unpack(data: bytes, most: int) -> bytes:
        buffer = ctypes.create_string_buffer(most)
        size = library.ZSTD_decompress(buffer, most, data, len(data))
        if library.ZSTD_isError(size):
            raise ValueError("a block cannot be decompressed")
        return ctypes.string_at(buffer, size)

    return unpack


def _zstandard() -> Optional[Decompress]:
    try:
        import zstandard
    except ImportError:
        return None

    def unpack(data: bytes, most: int) -> bytes:
        try:
            content: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
        except zstandard.ZstdError as error:
            raise ValueError(f"a block cannot be decompressed: {error}") from None
        return content

    return unpack


def _lz4() -> Optional[Decompress]:
    try:
        library = ctypes.CDLL("liblz4.so.1")
    except OSError:
        return None
    library.LZ4_decompress_safe.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]

    def unpack(data: bytes, most: int) -> bytes:
        buffer = ctypes.create_string_buffer(most)
        size = library.LZ4_decompress_safe(data, buffer, len(data), most)
        if size < 0:
            raise ValueError("a block cannot be decompressed")
        return ctypes.string_at(buffer, size)

    return unpack
