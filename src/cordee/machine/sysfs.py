"""Single values of /proc and /sys."""

from __future__ import annotations

import os
from typing import Optional

_MOST_BYTES = 65536


def text(path: str, limit: int = _MOST_BYTES) -> Optional[str]:
    """Return what a small file says, without the white space around it, or None when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, limit).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError:
        return None


def number(path: str) -> Optional[int]:
    """Return the whole number that a file holds, or None."""
    content = text(path, 64)
    try:
        return int(content) if content is not None else None
    except ValueError:
        return None


def whole(path: str) -> Optional[str]:
    """Return a file of any size, or None when it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return None


def names(folder: str) -> list[str]:
    """Return the sorted names in a folder; none when it is not there or closed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
