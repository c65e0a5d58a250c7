"""Finds the sbatch scripts of a folder and says which one is most likely the training."""

from __future__ import annotations

import os
from pathlib import Path

from cordee.backends.slurm.sbatch.body import read_body
from cordee.backends.slurm.sbatch.variables import Variables

ENDINGS = (".sbatch", ".slurm", ".sh", ".job", ".bash", ".batch", ".sub", ".slm", ".cmd")
_FOLDERS = (".", "slurm", "scripts", "jobs", "sbatch")
_MOST = 100
_HEAD_BYTES = 64 << 10


def find_scripts(folder: Path) -> list[str]:
    """Return the scripts with `#SBATCH` lines in a folder and its slurm, scripts, jobs and sbatch folders, the best first.

    A script that starts something comes before one that does not, one with `train` in its name before others, a
    higher folder before a lower one, then the alphabet decides.
    """
    found: list[tuple[bool, bool, int, str]] = []
    for depth in _FOLDERS:
        for name in _names(folder / depth)[:_MOST]:
            path = folder / depth / name
            text = _head(path) if name.endswith(ENDINGS) else ""
            if any(line.startswith("#SBATCH") for line in text.splitlines()):
                starts = bool(read_body(text, Variables(), 1).launches)
                shown = name if depth == "." else f"{depth}/{name}"
                found.append((not starts, "train" not in name.lower(), _FOLDERS.index(depth), shown))
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
