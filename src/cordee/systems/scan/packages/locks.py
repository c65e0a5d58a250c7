"""Locks of uv, poetry and pip (`pylock.toml`, PEP 751) with the hashes that hold them, and environments of conda."""

from __future__ import annotations

from typing import Any, NamedTuple

from cordee.systems.scan.packages.indexes import IndexSettings, NamedIndex
from cordee.systems.scan.packages.model import FoundPackage

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
        kind: `uv`, `poetry`, `pylock`.
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


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
