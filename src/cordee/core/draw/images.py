"""Pictures as PNG without any library: a grid of small whole numbers and a palette."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Colour = tuple[int, int, int]

LEVELS = 32
MISSING = 0  # the index of what was not measured; levels are 1..LEVELS
# Cividis (Nuñez, Anderton, Renslow 2018, doi:10.1371/journal.pone.0199239): read alike with and without colour blindness.
CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
# Okabe and Ito's, in the order of the lines of charts: some that can be told apart.
APART = ("0072b2", "d55e00", "009e73", "cc79a7", "b58900", "56b4e9", "7a5195", "6c757d")


def encode_png(indices: np.ndarray, palette: Sequence[Colour], transparent: int | None = None) -> bytes:
    """Return a PNG of uint8 [row, column], each an index into `palette`; `transparent` is not painted."""
    import numpy as np

    height, width = indices.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = indices
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header), _chunk(b"PLTE", bytes(sum(palette, ())))]
    if transparent is not None:
        parts.append(_chunk(b"tRNS", bytes(0 if at == transparent else 255 for at in range(transparent + 1))))
    return b"".join([*parts, _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)), _chunk(b"IEND", b"")])


def data_uri(png: bytes) -> str:
    """Return a PNG as an address that a page can hold."""
    return "data:image/png;base64," + b64encode(png).decode()


def ramp(levels: int = LEVELS) -> list[Colour]:
    """Return colours from least to greatest."""
    anchors = [rgb(text) for text in CIVIDIS]
    found = []
    for level in range(levels):
        place = level / max(1, levels - 1) * (len(anchors) - 1)
        low = min(int(place), len(anchors) - 2)
        pairs = zip(anchors[low], anchors[low + 1], strict=True)
        red, green, blue = (round(start + (stop - start) * (place - low)) for start, stop in pairs)
        found.append((red, green, blue))
    return found


def rgb(text: str) -> Colour:
    """Return a colour from `rrggbb`."""
    red, green, blue = bytes.fromhex(text.lstrip("#"))
    return red, green, blue


def to_levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return uint8 of the same shape: `MISSING` for NaN, 1..`LEVELS` for [low, high]; what lies outside is at the ends."""
    import numpy as np

    span = high - low if high > low else 1.0
    with np.errstate(invalid="ignore"):
        level = np.clip(np.floor((values - low) / span * LEVELS), 0, LEVELS - 1)
    return np.where(np.isfinite(values), np.nan_to_num(level) + 1, MISSING).astype(np.uint8)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
