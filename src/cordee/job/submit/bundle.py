"""The node side of Cordée as one zip: the version is pinned for the run, and nodes open one file instead of hundreds.

The zip is made once for a version and an interpreter, and kept in the user's cache. The runs of a folder hold links to one copy
that lies beside them, so that a thousand take the room of one.
"""

from __future__ import annotations

import filecmp
import hashlib
import importlib.util
import os
import py_compile
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import cordee
from cordee.core import sides
from cordee.core.errors import RunFolderError, SubmitError

_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNUSED_S = 30 * 86_400.0


def node_side_files() -> list[Path]:
    """Return the source files of the node side, sorted."""
    package = Path(cordee.__file__).parent
    return [package / "py.typed", *sides.node_side_files(package)]


# Python itself looks for the first name when it starts; the others are where the command is looked for.
_ELSEWHERE = {
    "sitecustomize.py": "client/adapters/sitecustomize.py",
    "cordee/faces/__init__.py": "faces/__init__.py",
    "cordee/faces/cli/__init__.py": "client/outside.py",
    "cordee/__main__.py": "client/outside.py",
    "cordee/cli.py": "client/outside.py",
}


def bundled_files() -> dict[str, Path]:
    """Return other people's modules that travel with the node side, by their name in the zip; each keeps its licence.

    nvidia-ml-py is one file of pure Python under the BSD licence: compute nodes ask their GPUs without installing it.
    """
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None or Path(spec.origin).name != "pynvml.py":
        return {}
    return {"cordee/machine/_bundled_pynvml.py": Path(spec.origin)}


def package_files(package: str) -> dict[str, Path]:
    """Return what travels of a system that is not built in, by its name in the zip: `__init__`, and all below `node`.

    Raises:
        RunFolderError: there is no such package.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RunFolderError("a system's package is not there", given=package, next="install it, or remove its table")
    home = Path(spec.origin).parent
    found = [home / "__init__.py", *sorted((home / "node").rglob("*.py"))]
    return {f"{package}/{path.relative_to(home)}": path for path in found}


def part_files(part: str) -> dict[str, Path]:
    """Return the Python files of the package that holds a `module:object`, by their name in the zip.

    Raises:
        SubmitError: it is no package of Python files.
    """
    name = part.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(name)
    folders = [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
    files = {f"{name}/{path.relative_to(folder)}": path for folder in folders for path in sorted(folder.rglob("*.py"))}
    if spec is not None and not folders and spec.origin and spec.origin.endswith(".py"):
        files = {f"{name}.py": Path(spec.origin)}
    if not files:
        raise SubmitError(
            f"nodes cannot be given {name}", given=part, allowed="a package or module of Python files", next="mend it"
        )
    return files


def write_node_zip(target: Path) -> None:
    """Write the node side to `target`, a file of its own.

    Raises:
        OSError: the target cannot be written.
    """
    sources = _sources(())
    try:
        shutil.copyfile(_kept(sources), target)
    except OSError:
        _build(target, sources)


def link_node_zip(target: Path, packages: Sequence[str] = (), part: str | None = None) -> None:
    """Give a run its node side: a link to the one file that all runs of this version beside it share, or a copy where there are no links.

    Args:
        target: the file in the run's folder.
        packages: of systems that are not built in.
        part: what nodes load of a back end that is not built in, as `module:object`.

    Raises:
        RunFolderError, SubmitError: one of them is not there.
        OSError: the target cannot be written.
    """
    sources = _sources(packages) | (part_files(part) if part is not None else {})
    try:
        kept = _kept(sources)
    except OSError:
        _build(target, sources)
        return
    beside = target.parent.parent / f".{kept.stem}-{os.getuid()}.zip"
    with suppress(OSError):
        if _is_copy(beside, kept):
            os.link(beside, target)
            return
    shutil.copyfile(kept, target)
    os.chmod(target, 0o444)
    with suppress(OSError):
        _keep_beside(beside, target)


def _keep_beside(beside: Path, target: Path) -> None:
    """Let later runs of the user link a run's copy; those of other versions go that no run holds."""
    beside.unlink(missing_ok=True)
    os.link(target, beside)
    for other in beside.parent.glob(f".node-*-{os.getuid()}.zip"):
        if other.stat().st_nlink == 1:
            other.unlink()


def _is_copy(beside: Path, kept: Path) -> bool:
    """Return whether a file is ours and whole: others may write where runs lie, and who writes into one run's file writes into it."""
    status = beside.lstat()
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o222
    return ours and filecmp.cmp(beside, kept, shallow=False)


def _kept(sources: dict[str, Path]) -> Path:
    """Return the zip of these files in the user's cache; it is made where it is not there."""
    cached = _cache_path(sources)
    if not cached.is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        _build(cached, sources)
        _forget_unused(cached.parent)
    with suppress(OSError):  # it may be somebody else's
        os.utime(cached)
    return cached


def _forget_unused(folder: Path) -> None:
    for path in folder.glob("node-*.zip"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()


def _cache_path(sources: dict[str, Path]) -> Path:
    key = hashlib.sha256(sys.implementation.cache_tag.encode())
    for path in sources.values():
        status = path.stat()
        key.update(f"{path}:{status.st_size}:{status.st_mtime_ns};".encode())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "cordee" / f"node-{key.hexdigest()[:20]}.zip"


def _sources(packages: Sequence[str]) -> dict[str, Path]:
    package = Path(cordee.__file__).parent
    ours = {f"cordee/{path.relative_to(package)}": path for path in node_side_files()}
    theirs = {name: path for each in packages for name, path in package_files(each).items()}
    return {**ours, **{name: package / path for name, path in _ELSEWHERE.items()}, **bundled_files(), **theirs}


def _build(target: Path, sources: dict[str, Path]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".node-")
    os.close(descriptor)
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive, tempfile.TemporaryDirectory() as scratch:
            for name, path in sources.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
                if path.suffix == ".py":
                    compiled = Path(scratch) / "module.pyc"
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    py_compile.compile(str(path), str(compiled), dfile=name, doraise=True, invalidation_mode=mode)
                    archive.writestr(zipfile.ZipInfo(name + "c", _EPOCH), compiled.read_bytes())
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
