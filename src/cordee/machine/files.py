"""Small kernel files that are read again and again."""

from __future__ import annotations

import contextlib
import os
from typing import Optional


class KernelFile:
    """A file of /proc or /sys that is opened once and read from its start at every call."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reason: Optional[str] = None
        self._descriptor: Optional[int] = None

    def read(self, limit: Optional[int] = None) -> Optional[bytes]:
        """Return the content (its first `limit` bytes), or None with `reason` set when it cannot be read."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            data = self._read_all(self._descriptor) if limit is None else os.pread(self._descriptor, limit, 0)
        except OSError as error:
            self.reason = f"{self.path}: {error.strerror}"
            self.close()
            return None
        self.reason = None
        return data

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError, TypeError):  # also while the interpreter ends
            self.close()

    @staticmethod
    def _read_all(descriptor: int) -> bytes:
        parts: list[bytes] = []
        offset = 0
        while True:
            part = os.pread(descriptor, 65536, offset)
            if not part:
                return b"".join(parts)
            parts.append(part)
            offset += len(part)


def read_once(path: str) -> bytes:
    """Return the content of a small file.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
