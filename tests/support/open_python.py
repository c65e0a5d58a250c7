"""A Python with Cordée that every user of this machine may run: the one that runs the tests may lie in a closed home."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import cordee


class OpenPython(NamedTuple):
    """An interpreter that every user may run, and the folder with the package `cordee` that they may read."""

    executable: str
    source: str


@contextmanager
def open_python() -> Iterator[OpenPython]:
    """Give this Python where all may read it and its modules; else a copy, without extras of Cordée, until the block ends."""
    own = OpenPython(sys.executable, str(Path(cordee.__file__).parents[1]))
    paths = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    if all(_is_open(Path(path)) for path in (*own, *paths)):
        yield own
        return
    # Container engines cover /tmp while they mount.
    with tempfile.TemporaryDirectory(prefix="cordee-python-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield _copy(folder)


def _is_open(path: Path) -> bool:
    """Return whether every user may read what lies there and go through each folder to it."""
    real = path.resolve()
    return all(place.stat().st_mode & 0o005 == 0o005 for place in (real, *real.parents))


def _copy(folder: Path) -> OpenPython:
    program = _copy_program(folder)
    standard = Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "ensurepip")
    library = folder / standard.relative_to(sys.base_prefix)
    shutil.copytree(standard, library, copy_function=_link, ignore=left_out, dirs_exist_ok=True)
    packages = library / "site-packages"
    for distribution in _needed("cordee", {}).values():
        for file in distribution.files or []:
            target = packages / file
            if file.parts[0] != ".." and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(str(file.locate()), target)
    shutil.copytree(Path(cordee.__file__).parent, packages / "cordee", copy_function=_link, dirs_exist_ok=True)
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    return OpenPython(str(program), str(packages))


def _copy_program(folder: Path) -> Path:
    """Copy the interpreter and, where it has one, its library: beside it, which is where the copy then looks for it."""
    program = folder / "bin" / "python3"
    (folder / "lib").mkdir()
    program.parent.mkdir()
    data = Path(sys.executable).resolve().read_bytes()
    at = f"{sys.base_prefix}/lib"
    library = Path(at) / str(sysconfig.get_config_var("INSTSONAME"))
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
        for place in (program.parent, folder / "lib"):
            _link(str(library), place / library.name)
        data = data.replace(at.encode() + b"\0", b"$ORIGIN".ljust(len(at) + 1, b"\0"))
    program.write_bytes(data)
    program.chmod(0o755)
    return program


def _link(source: str, target: str | Path) -> None:
    """Give a file a second name; one of another file system, or that is closed itself, is copied."""
    try:
        if not os.stat(source).st_mode & 0o004:
            raise PermissionError(source)
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        os.chmod(target, os.stat(target).st_mode | 0o555)


def _needed(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """Return what is installed of a package and all that it needs without extras, by name."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    name = canonicalize_name(name)
    if name not in found:
        found[name] = metadata.distribution(name)
        for text in found[name].requires or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                _needed(needed.name, found)
    return found
