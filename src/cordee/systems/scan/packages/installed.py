"""What is installed in an environment of Python or conda, read from its files: no Python is started, nothing is imported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.machine.foreign_files import read_regular
from cordee.systems.scan.packages.model import FoundFolder, FoundPackage

_METADATA_BYTES, _CONDA_BYTES = 4 << 20, 32 << 20
_MOST, _MOST_LICENCES = 20_000, 12
_NEEDED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist-info|egg-info)$")


class InstalledEnvironment(NamedTuple):
    """An environment and where its parts are.

    Attributes:
        path: of it, as people know it.
        sites: its folders of packages, below `path`.
        folder: reads it.
    """

    path: str
    sites: tuple[str, ...]
    folder: FoundFolder


def folder_on_disk(root: str) -> FoundFolder:
    """Return how the files below a folder are read; no link is followed from there on."""

    def names(path: str) -> list[str]:
        try:
            return sorted(os.listdir(os.path.join(root, path)))
        except OSError:
            return []

    def read(path: str, limit: int) -> bytes | None:
        try:
            return read_regular(os.path.join(root, path), below=root, limit_bytes=limit)
        except (OSError, ValueError):
            return None

    return FoundFolder(names, read)


def environment_at(path: str) -> InstalledEnvironment | None:
    """Return the environment that a folder is: a venv, a conda prefix, or a folder of packages itself; None: it is none."""
    root = Path(path)
    is_venv, is_conda = (root / "pyvenv.cfg").is_file(), (root / "conda-meta").is_dir()
    if is_venv or is_conda:
        found = sorted(
            os.path.relpath(each, root)
            for pattern in ("lib/python3*/site-packages", "lib64/python3*/site-packages")
            for each in root.glob(pattern)
            if not each.parent.parent.is_symlink()
        )
        return InstalledEnvironment(path, tuple(found), folder_on_disk(path))
    if root.name in ("site-packages", "dist-packages") and root.is_dir():
        return InstalledEnvironment(path, ("",), folder_on_disk(path))
    return None


def installed_packages(environment: InstalledEnvironment, *, metadata: bool = True) -> Iterator[FoundPackage]:
    """Yield the packages of an environment.

    Args:
        environment: a venv, a conda prefix, a part of an image.
        metadata: whether licences and what packages need are read, too; without, names come from the names of folders.
    """
    count = 0
    for site in environment.sites:
        for name in environment.folder.names(site):
            match = _INFO.match(name)
            if match is None:
                continue
            count += 1
            if count > _MOST:
                return
            plain = FoundPackage(match["name"].replace("_", "-"), match["version"], path=environment.path)
            yield (_described(environment, f"{site}/{name}".lstrip("/"), plain) if metadata else plain)
    for name in environment.folder.names("conda-meta"):
        if name.endswith(".json"):
            one = conda_package(environment.folder.read(f"conda-meta/{name}", _CONDA_BYTES), environment.path)
            if one is not None:
                yield one


def _described(environment: InstalledEnvironment, info: str, plain: FoundPackage) -> FoundPackage:
    for file in (f"{info}/METADATA", f"{info}/PKG-INFO", info):
        text = environment.folder.read(file, _METADATA_BYTES)
        if text is not None:
            return python_package(text, environment.path) or plain
    return plain


def python_package(metadata: bytes, path: str) -> FoundPackage | None:
    """Return the package that a METADATA or PKG-INFO describes; None: it names none."""
    found: dict[str, list[str]] = {}
    for line in metadata.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            break  # the description follows
        key, colon, value = line.partition(":")
        if colon and line[0] not in " \t":
            found.setdefault(key.lower(), []).append(value.strip())
    if not found.get("name"):
        return None
    needed = (
        match[0]
        for match in (_NEEDED.match(line) for line in found.get("requires-dist", ()) if "extra ==" not in line)
        if match
    )
    classifiers = (line.split(" :: ") for line in found.get("classifier", ()))
    licences = found.get("license-expression") or [
        words[-1] for words in classifiers if words[0] == "License" and words[1:] != ["OSI Approved"]
    ]
    return FoundPackage(
        found["name"][0][:200],
        (found.get("version") or [""])[0][:100],
        path=path,
        requires=tuple(dict.fromkeys(needed)),
        licence="\n".join(each[:120] for each in (licences or found.get("license", []))[:_MOST_LICENCES] if each),
    )


def conda_package(text: bytes | None, path: str) -> FoundPackage | None:
    """Return the package that a file of `conda-meta` describes; None: it describes none."""
    try:
        said = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    try:
        size = sum(int(each["size_in_bytes"]) for each in said["paths_data"]["paths"] if "size_in_bytes" in each)
    except (KeyError, TypeError, ValueError):
        size = 0
    hashes = tuple(f"{kind}:{said[kind]}" for kind in ("sha256", "md5") if isinstance(said.get(kind), str))
    return FoundPackage(
        said["name"][:200],
        str(said.get("version", ""))[:100],
        "conda",
        path,
        licence=str(said.get("license") or "")[:120],
        hashes=hashes[:1],
        bytes=max(size, 0),
    )
