"""Which Python `python` in a job means, and where a command is found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_MADE_FOR_CORDEE_ALONE = ("uv-receipt.toml", "pipx_metadata.json")


def interpreter_path(
    environ: Mapping[str, str], prefix: str = sys.prefix, base_prefix: str = sys.base_prefix
) -> list[str]:
    """Return the folders to put in front of PATH so that `python` is the one that the person means.

    An active virtual or conda environment is on PATH already. Otherwise, when Cordée itself lives in a virtual
    environment of the project, that environment is meant; one that a tool installer made for Cordée alone is not.
    """
    if environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX") or prefix == base_prefix:
        return []
    if any((Path(prefix) / mark).exists() for mark in _MADE_FOR_CORDEE_ALONE):
        return []
    folder = str(Path(prefix) / "bin")
    return [] if environ.get("PATH", "").split(os.pathsep)[:1] == [folder] else [folder]


def which(command: str, path_prepend: tuple[str, ...], environ: Mapping[str, str], workdir: Path) -> str | None:
    """Return the absolute path of a job's command as the agent will find it, None when it will not.

    `python` stands for `python3` where only that exists.
    """
    if "/" in command:
        path = workdir / command
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    folders = [*path_prepend, *environ.get("PATH", os.defpath).split(os.pathsep)]
    for name in (command, "python3") if command == "python" else (command,):
        for folder in folders:
            found = Path(workdir, folder, name)
            if found.is_file() and os.access(found, os.X_OK):
                return str(found)
    return None


def commands_on_path(path_prepend: tuple[str, ...], environ: Mapping[str, str]) -> set[str]:
    """Return the names of the programs on PATH; for suggestions."""
    names: set[str] = set()
    for folder in [*path_prepend, *environ.get("PATH", os.defpath).split(os.pathsep)]:
        try:
            names.update(os.listdir(folder or "."))
        except OSError:
            continue
    return names
