"""What parts of reading an image take and give."""

from __future__ import annotations

from typing import Protocol


class ByteReader(Protocol):
    """What bytes are read from, one after another."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes; empty: the end."""
        ...
