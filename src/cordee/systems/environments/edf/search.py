"""Where an EDF is: a path, or a name on the search path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cordee.core.findings import Finding
from cordee.core.words import nearest

SUFFIX = ".toml"


def search_folders(variables: Mapping[str, str], site: Iterable[str] = ()) -> tuple[Path, ...]:
    """Return the folders in which names are looked up: those of `EDF_PATH`, else `~/.edf`; then the site's.

    Args:
        variables: of the host; `EDF_PATH` is a colon list.
        site: folders of a cluster's profile; `~` and variables are filled in.
    """
    given = variables.get("EDF_PATH", "")
    home = variables.get("HOME") or os.path.expanduser("~")
    own = [part for part in given.split(":") if part] if given else [f"{home}/.edf"]
    return tuple(Path(os.path.expandvars(os.path.expanduser(part))) for part in [*own, *site])


def is_path(name: str) -> bool:
    """Return whether an EDF is named by its path: it begins with `.` or `/`, or ends with `.toml`."""
    return name.startswith((".", "/")) or name.endswith(SUFFIX)


def find_edf(name: str, cwd: Path, folders: Sequence[Path]) -> Path | None:
    """Return the file of an EDF, None when there is none.

    A path is relative to `cwd`; a bare `NAME.toml` that is not there, like a name, is looked up in the folders.
    """
    if is_path(name):
        path = Path(os.path.normpath(cwd / name))
        if path.is_file() or name.startswith((".", "/")):
            return path if path.exists() and not path.is_dir() else None
    file = name if name.endswith(SUFFIX) else name + SUFFIX
    return next((cwd / folder / file for folder in folders if (cwd / folder / file).is_file()), None)


def no_such_edf(name: str, cwd: Path, folders: Sequence[Path], file: str | None, line: int | None) -> Finding:
    """Return the finding for an EDF that is not there, with what is.

    Args:
        name, cwd, folders: as `find_edf` was given them.
        file, line: where the name stands; None: on the command line.
    """
    if is_path(name):
        path = Path(os.path.normpath(cwd / name))
        text = f"there is no file {path}" if not path.is_dir() else f"{path} is a folder, not an EDF"
        names = _names([path.parent])
        hint = _nearest(path.stem, names) or "give the path of an EDF; relative ones begin where the command is called"
    else:
        names = _names(folders)
        places = ":".join(map(str, folders))
        text = f"there is no EDF {name} on the search path {places}"
        beside = (cwd / name).is_file() or (cwd / (name + SUFFIX)).is_file()
        path_of_it = name if (cwd / name).is_file() else name + SUFFIX
        hint = f"did you mean ./{path_of_it}?" if beside else _nearest(name, names) or "give a path, or set EDF_PATH"
    return Finding(
        text, "error", "no-such-edf", file=file, line=line, given=name, allowed=names[:20] or None, next=hint
    )


def _names(folders: Iterable[Path]) -> list[str]:
    found: set[str] = set()
    for folder in folders:
        try:
            found.update(name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX))
        except OSError:
            continue
    return sorted(found)


def _nearest(name: str, names: Sequence[str]) -> str | None:
    near = nearest(name, names)
    return f"did you mean {near}?" if near else None
