"""Locks: of uv, poetry, pip (`pylock.toml`, PEP 751), pipenv and conda, with the hashes that hold them."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from cordee.systems.scan.packages.indexes import IndexSettings, NamedIndex
from cordee.systems.scan.packages.model import FoundPackage

_EXPLICIT = re.compile(r"^(?P<url>[a-z]+://\S+?)(?:#(?P<hash>(?:sha256:)?[0-9a-f]{32,64}))?$")
_CONDA_FILE = re.compile(r"/(?P<name>[^/]+)-(?P<version>[^-/]+)-[^-/]+\.(?:conda|tar\.bz2)$")
_MOST = 50_000


class LockedPackage(NamedTuple):
    """A package of a lock.

    Attributes:
        package: with its version.
        hashed: whether each of its files is held to a hash; None: it has none, as a folder beside the project.
        url: where it comes from.
    """

    package: FoundPackage
    hashed: bool | None
    url: str = ""


class LockFile(NamedTuple):
    """What a lock holds.

    Attributes:
        kind: `uv`, `poetry`, `pylock`, `pipenv`, `conda`.
        packages: that it names.
        settings: its indexes, where it says any.
    """

    kind: str
    packages: tuple[LockedPackage, ...]
    settings: IndexSettings = IndexSettings()


def toml_lock(document: dict[str, Any], path: str) -> LockFile | None:
    """Return the lock that a TOML document is; None: it is none."""
    packages = [one for one in _list(document.get("package") or document.get("packages")) if "name" in one][:_MOST]
    if "lock-version" in document and "packages" in document:
        return LockFile("pylock", tuple(_pylock(one, path) for one in packages))
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "lock-version" in metadata:
        old = metadata.get("files")  # of poetry before 1.3: beside the packages
        return LockFile("poetry", tuple(_poetry(one, old if isinstance(old, dict) else {}, path) for one in packages))
    if isinstance(document.get("version"), int) and ("requires-python" in document or packages):
        locked = tuple(_uv(one, path) for one in packages)
        urls = dict.fromkeys(
            str(one["source"]["registry"])
            for one in packages
            if isinstance(one.get("source"), dict) and "registry" in one["source"]
        )
        return LockFile("uv", locked, IndexSettings(tuple(NamedIndex(url, "registry") for url in urls)))
    return None


def json_lock(text: str, path: str) -> LockFile | None:
    """Return the lock of pipenv that a text is; None: it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("_meta"), dict):
        return None
    found = []
    for group in ("default", "develop"):
        for name, one in _table(document.get(group)).items():
            said = _table(one)
            version = str(said.get("version", "")).removeprefix("==")
            hashes = tuple(map(str, said.get("hashes") or ())) if isinstance(said.get("hashes"), list) else ()
            editable = "path" in said or "editable" in said
            found.append(
                LockedPackage(
                    FoundPackage(str(name), version, path=path, hashes=hashes), None if editable else bool(hashes)
                )
            )
    sources = [NamedIndex(str(one.get("url", "")), "source") for one in _list(document["_meta"].get("sources"))]
    return LockFile("pipenv", tuple(found[:_MOST]), IndexSettings(tuple(sources)))


def conda_explicit(text: str, path: str) -> LockFile | None:
    """Return what `conda list --explicit` has written; None: it is something else."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if "@EXPLICIT" not in lines[:5]:
        return None
    found = []
    for line in lines:
        match = _EXPLICIT.match(line)
        if match is not None:
            found.append(_conda(match["url"], match["hash"] or "", path))
    urls = tuple(NamedIndex(one.url, "lock") for one in found if one.url.startswith("http://"))[:1]
    return LockFile("conda", tuple(found[:_MOST]), IndexSettings(urls))


def yaml_lock(document: Any, path: str) -> LockFile | None:
    """Return the conda lock (`conda-lock.yml`), or the environment, that a YAML document is; None: it is none."""
    if not isinstance(document, dict):
        return None
    packages = _list(document.get("package"))
    if packages and "metadata" in document:
        found = [
            LockedPackage(
                FoundPackage(
                    str(one.get("name", "")),
                    str(one.get("version", "")),
                    "pypi" if one.get("manager") == "pip" else "conda",
                    path,
                ),
                bool(_table(one.get("hash"))),
                str(one.get("url", "")),
            )
            for one in packages[:_MOST]
        ]
        return LockFile("conda", tuple(found))
    return None


def conda_environment(document: Any) -> tuple[list[str], list[str], list[str]] | None:
    """Return (channels, what conda gives, what pip gives) of an `environment.yml`; None: it is none."""
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        return None
    asked = [one for one in document["dependencies"] if isinstance(one, str)]
    by_pip = [line for one in document["dependencies"] if isinstance(one, dict) for line in one.get("pip") or ()]
    channels = document.get("channels")
    return (
        [str(one) for one in channels] if isinstance(channels, list) else [],
        asked[:_MOST],
        [line for line in by_pip if isinstance(line, str)][:_MOST],
    )


def _uv(one: dict[str, Any], path: str) -> LockedPackage:
    source = _table(one.get("source"))
    files = [*_list(one.get("wheels")), *_list([one.get("sdist")])]
    url = str(source.get("url") or source.get("git") or "")
    local = any(key in source for key in ("editable", "virtual", "directory", "path", "workspace"))
    fixed = "git" in source and "#" in url
    hashed = None if local else fixed or (bool(files) and all("hash" in file for file in files))
    return LockedPackage(_found(one, path, files), hashed, url)


def _poetry(one: dict[str, Any], old: dict[str, Any], path: str) -> LockedPackage:
    files = _list(one.get("files")) or _list(old.get(str(one.get("name"))))
    source = _table(one.get("source"))
    local = source.get("type") in ("directory", "file")
    fixed = source.get("type") == "git" and bool(source.get("resolved_reference"))
    hashed = None if local else fixed or (bool(files) and all("hash" in file for file in files))
    return LockedPackage(_found(one, path, files), hashed, str(source.get("url", "")))


def _pylock(one: dict[str, Any], path: str) -> LockedPackage:
    files = [*_list(one.get("wheels")), *_list([one.get("sdist"), one.get("archive")])]
    vcs = _table(one.get("vcs"))
    hashed = bool(files) and all(_table(file.get("hashes")) for file in files)
    local = "directory" in one
    url = str(vcs.get("url") or _table(one.get("archive")).get("url") or "")
    return LockedPackage(_found(one, path, files), None if local else bool(vcs.get("commit-id")) or hashed, url)


def _found(one: dict[str, Any], path: str, files: list[dict[str, Any]]) -> FoundPackage:
    hashes = tuple(str(file["hash"]) for file in files if "hash" in file)
    version = one.get("version")
    return FoundPackage(str(one["name"]), version if isinstance(version, str) else "", path=path, hashes=hashes)


def _conda(url: str, said: str, path: str) -> LockedPackage:
    match = _CONDA_FILE.search(url)
    name, version = (match["name"], match["version"]) if match else (url.rpartition("/")[2], "")
    return LockedPackage(FoundPackage(name, version, "conda", path), bool(said), url)


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
