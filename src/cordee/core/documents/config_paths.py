"""Where settings, profiles and runs are looked for; imports nothing that takes time, as listing runs needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import tomllib

from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError

SITE_FOLDER = Path("/etc/cordee/clusters")


def config_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the person's own settings."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.config"))) / "cordee"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for what can be made again."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))) / "cordee"


def profile_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders of profiles, the site's before the user's; `CORDEE_CLUSTERS_PATH` replaces them."""
    given = environ.get("CORDEE_CLUSTERS_PATH")
    if given:
        return [Path(part) for part in given.split(os.pathsep) if part]
    return [SITE_FOLDER, config_folder(environ) / "clusters"]


def profile_names(environ: Mapping[str, str]) -> set[str]:
    """Return the names of the clusters that have a profile."""
    names: set[str] = set()
    for folder in profile_folders(environ):
        try:
            names.update(name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml"))
        except OSError:
            continue
    return names


def profile_runs(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders that profiles name for runs; a profile that cannot be read names none."""
    found: dict[str, Path] = {}
    names = sorted(profile_names(environ))
    for path in (folder / f"{name}.toml" for folder in profile_folders(environ) for name in names):
        try:
            runs = tomllib.loads(text_of(path.read_bytes(), str(path))).get("runs")
        except (OSError, ValueError, RecursionError, DocumentError):
            continue
        if isinstance(runs, str):
            found[path.stem] = runs_path(runs)
    return list(dict.fromkeys(found.values()))


def runs_path(runs: str) -> Path:
    """Return the folder that a profile's `runs` means: `~` and variables are filled in."""
    return Path(os.path.expandvars(os.path.expanduser(runs))).absolute()
