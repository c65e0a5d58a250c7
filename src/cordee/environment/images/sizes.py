"""How much lies in a folder."""

from __future__ import annotations

import os
from pathlib import Path


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile does not count."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total
