"""Decompressors of libraries that may be installed; they must be loaded before the process is confined."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import Any, Callable, Optional

_MODULES = {"lz4": ("lz4.frame",), "zstd": ("compression.zstd", "zstandard")}
_LARGEST_WINDOW = 128 << 20


def load() -> None:
    """Import what there is."""
    for names in _MODULES.values():
        for name in names:
            with contextlib.suppress(Exception):
                import_module(name)
                break


def decompressor(name: str) -> Optional[Callable[[], Any]]:
    """Return what makes a decompressor, which has the interface of `bz2.BZ2Decompressor`; None: its library is not loaded."""
    found = next((sys.modules[one] for one in _MODULES.get(name, ()) if one in sys.modules), None)
    if found is None:
        return None
    if name == "lz4":
        return found.LZ4FrameDecompressor  # type: ignore[no-any-return]
    if found.__name__ == "zstandard":
        return lambda: _Zstandard(found)
    return found.ZstdDecompressor  # type: ignore[no-any-return]


class _Zstandard:
    """One frame by the library `zstandard`, a piece at a time."""

    def __init__(self, library: Any) -> None:
        self._machine = library.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj(write_size=1 << 20)

    @property
    def eof(self) -> bool:
        return bool(self._machine.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._machine.unused_data)

    def decompress(self, data: bytes, most: int) -> bytes:
        """Return what comes of some bytes; of one mebibyte that may be much, which the process's memory bounds."""
        return bytes(self._machine.decompress(data))
