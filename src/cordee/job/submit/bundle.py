"""The node side of Cordée as one zip: the version is pinned for the run, and nodes open one file instead of hundreds."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import shutil
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


# Python itself looks for this name when it starts.
_AT_THE_TOP = {"sitecustomize.py": "client/adapters/sitecustomize.py"}


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


def add_package(target: Path, part: str) -> None:
    """Add the Python files of the package that holds a `module:object` to a node.zip.

    Raises:
        SubmitError: it is no package of Python files.
        OSError: they cannot be read, or the zip cannot be written.
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
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for inside, path in files.items():
            archive.writestr(zipfile.ZipInfo(inside, _EPOCH), path.read_bytes())


def write_node_zip(target: Path, packages: Sequence[str] = ()) -> None:
    """Write the node side to `target`; a copy compiled earlier for this interpreter is used again, and kept while it is.

    Args:
        target: the file.
        packages: of systems that are not built in.

    Raises:
        OSError: the target cannot be written.
    """
    sources = _sources(packages)
    cached = _cache_path(sources)
    try:
        if not cached.is_file():
            cached.parent.mkdir(parents=True, exist_ok=True)
            _build(cached, sources)
            _forget_unused(cached.parent)
        with suppress(OSError):  # it may be somebody else's
            os.utime(cached)
        shutil.copyfile(cached, target)
    except OSError:
        _build(target, sources)


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
    return {**ours, **{name: package / path for name, path in _AT_THE_TOP.items()}, **bundled_files(), **theirs}


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
