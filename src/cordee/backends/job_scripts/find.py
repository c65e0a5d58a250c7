"""Finds the job scripts of a folder and says which one is most likely the training."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

_MOST = 100
_HEAD_BYTES = 64 << 10


def find_scripts(
    folder: Path, folders: Sequence[str], endings: tuple[str, ...], starts: Callable[[str], bool | None]
) -> list[str]:
    """Return the job scripts in a folder, the best first.

    A script that starts something comes before one that does not, one with `train` in its name before others, a
    higher folder before a lower one, then the alphabet decides.

    Args:
        folder: where they are looked for.
        folders: of it, in order; "." is itself.
        endings: of their names.
        starts: whether a text starts something; None where it is no job script.
    """
    found: list[tuple[bool, bool, int, str]] = []
    for depth, below in enumerate(folders):
        for name in _names(folder / below)[:_MOST]:
            answer = starts(_head(folder / below / name)) if name.endswith(endings) else None
            if answer is not None:
                shown = name if below == "." else f"{below}/{name}"
                found.append((not answer, "train" not in name.lower(), depth, shown))
    return [name for *_, name in sorted(found)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.isprintable())
    except OSError:
        return []


def _head(path: Path) -> str:
    """Return the beginning of a script; nothing of what is no text."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode(errors="replace").replace("\r\n", "\n")
