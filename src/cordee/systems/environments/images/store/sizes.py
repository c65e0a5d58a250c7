"""How much lies in a folder, and since when."""

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


def last_change(path: Path) -> float:
    """Return when a file, or anything in a folder, was changed last, in epoch seconds; 0: it is gone."""
    times = [0.0]
    for place, _, files in os.walk(path):
        for each in (place, *(os.path.join(place, name) for name in files)):
            try:
                times.append(os.lstat(each).st_mtime)
            except OSError:
                continue
    try:
        return max(*times, os.lstat(path).st_mtime)
    except OSError:
        return max(times)
