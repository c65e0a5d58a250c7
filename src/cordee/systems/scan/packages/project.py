"""The files by which a project asks for packages, known by what stands in them, and what is wrong with each."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError
from cordee.core.words import counted
from cordee.machine.foreign_files import read_regular
from cordee.systems.scan.node.verdict import Sight
from cordee.systems.scan.packages.indexes import (
    IndexSettings,
    NamedIndex,
    index_sights,
    pip_settings,
    poetry_settings,
    shown_url,
    uv_settings,
)
from cordee.systems.scan.packages.locks import LockFile, conda_environment, toml_lock
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.names import KnownNames
from cordee.systems.scan.packages.requirement_lines import PackageRequest, is_requirements, read_requirements

_LIMIT_BYTES = 32 << 20
_YAML_BYTES = 2 << 20
_SHOWN = 6
_ENDS = (".txt", ".in", ".pip", ".toml", ".lock", ".conf", ".ini", ".yml", ".yaml", ".cfg")
_BRACKETS = re.compile(r"[\[\]{}]")
_DEEP_LINE = re.compile(r"^(?:[ \t]{200}|[ \t]*(?:[-?:][ \t]+){30})", re.MULTILINE)
_ALWAYS = re.compile(r"uv\.(?:lock|toml)|poetry\.lock|pylock(?:\.[^.]+)?\.toml|pyproject\.toml")
_NAMED_REQUIREMENTS = re.compile(
    r"(?:^|[-_.])(?:requirements?|constraints?)(?:[-_.].*)?\.(?:txt|in|pip)$", re.IGNORECASE
)


class ProjectFile(NamedTuple):
    """One file that asks for packages.

    Attributes:
        path: of it.
        kind: `requirements`, `pip.conf`, `uv`, `pyproject`, `conda`, or the kind of a lock.
        packages: that it names with their versions.
        sights: what is wrong with it.
        unknown: names that are in no list.
    """

    path: str
    kind: str
    packages: tuple[FoundPackage, ...]
    sights: tuple[Sight, ...]
    unknown: tuple[str, ...] = ()


def asked_file(path: str, known: KnownNames) -> ProjectFile | None:
    """Return what a file asks for; None: it asks for no packages.

    Args:
        path: of a regular file.
        known: names.
    """
    name = os.path.basename(path)
    if not name.endswith(_ENDS) or os.path.dirname(path).endswith((".egg-info", ".dist-info")):
        return None
    try:
        text = text_of(read_regular(path, limit_bytes=_LIMIT_BYTES), path)
    except OSError:
        return None  # whoever looks at all files says so
    except DocumentError as error:
        named = _ALWAYS.fullmatch(name) or _NAMED_REQUIREMENTS.search(name)
        return _unreadable(path, f"line {error.line} {error.text}; {error.next}") if named else None
    try:
        return _by_content(path, name, text, known)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        return _unreadable(path, f"it is of a form that is not known: {error}")


def _by_content(path: str, name: str, text: str, known: KnownNames) -> ProjectFile | None:
    if name.endswith((".toml", ".lock")):
        return _of_toml(path, text, known)
    if name.endswith((".yml", ".yaml")):
        return _of_yaml(path, text, known)
    if name.endswith((".conf", ".ini", ".cfg")):
        if name not in ("pip.conf", "pip.ini"):
            return None
        settings = pip_settings(text)
        if settings is None:
            return _unreadable(path, "it is no configuration of pip")
        return _file(path, "pip.conf", (), index_sights(settings, hashed=False))
    if _NAMED_REQUIREMENTS.search(name) or is_requirements(text):
        return _of_requirements(path, text, known)
    return None


def _of_requirements(path: str, text: str, known: KnownNames) -> ProjectFile:
    name, read = os.path.basename(path), read_requirements(text)
    hashed = bool(read.asked) and all(one.hashes for one in read.asked)
    sights = [
        *index_sights(read.settings, hashed=hashed),
        *_name_sights([(one.name, f"line {one.line}") for one in read.asked], known),
        *_internal_sights(read.asked, read.settings, known),
        *_url_sights((one.name, one.url, one.is_fixed, f"line {one.line}") for one in read.asked if one.url),
        *(_hash_sights(read.asked) if not name.startswith("constraint") else ()),  # these ask for nothing
    ]
    for number, line in read.unreadable[:_SHOWN]:
        sights.append(
            Sight("package-unreadable", "unknown", f"this is no requirement: {line[:80]!r}", f"line {number}")
        )
    packages = (FoundPackage(one.name, one.version, path=path, hashes=one.hashes) for one in read.asked if one.version)
    return _file(path, "requirements", packages, sights, _unknown((one.name for one in read.asked), known))


def _of_toml(path: str, text: str, known: KnownNames) -> ProjectFile | None:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return _unreadable(path, f"it is no TOML: {error}") if _ALWAYS.fullmatch(os.path.basename(path)) else None
    lock = toml_lock(document, path)
    if lock is not None:
        return _of_lock(path, lock, known)
    tool = document.get("tool")
    tables = tool if isinstance(tool, dict) else {}
    project = document.get("project")
    if os.path.basename(path) == "uv.toml":
        return _file(path, "uv", (), index_sights(uv_settings(document), hashed=False))
    if not isinstance(project, dict) and not tables.keys() & {"uv", "poetry"}:
        return None
    settings = uv_settings(tables.get("uv"))
    other = poetry_settings(tables.get("poetry"))
    lines = [line for line in (project or {}).get("dependencies") or () if isinstance(line, str)]
    for group in ((project or {}).get("optional-dependencies") or {}).values():
        lines += [line for line in group if isinstance(line, str)]
    poetry = tables.get("poetry")
    given = poetry.get("dependencies") if isinstance(poetry, dict) else None
    lines += [name for name in given or () if name != "python"] if isinstance(given, dict) else []
    asked = read_requirements("\n".join(lines)).asked
    names = [(one.name, "dependencies") for one in asked]
    both = IndexSettings((*settings.indexes, *other.indexes), settings.trusted, settings.closed)
    sights = [
        *index_sights(both, hashed=False),
        *_name_sights(names, known),
        *_internal_sights(asked, both, known, where="dependencies"),
        *_url_sights((one.name, one.url, one.is_fixed, "dependencies") for one in asked if one.url),
    ]
    return _file(path, "pyproject", (), sights, _unknown((one.name for one in asked), known))


def _of_yaml(path: str, text: str, known: KnownNames) -> ProjectFile | None:
    if "dependencies:" not in text or "\0" in text:
        return None
    import yaml  # deferred: few projects have such a file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > _YAML_BYTES and loader is yaml.SafeLoader:
        return _file(
            path, "conda", (), [Sight("file-too-much", "unknown", "it is too long for the YAML reader that is here")]
        )
    if _is_deep(text):
        return _unreadable(path, "it is nested too deeply")
    try:
        document = yaml.load(text, loader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    environment = conda_environment(document)
    if environment is None:
        return None
    channels, by_conda, by_pip = environment
    asked = read_requirements("\n".join(by_pip))
    plain = [NamedIndex(one, "channels") for one in channels if one.startswith("http://")]
    settings = asked.settings._replace(indexes=(*asked.settings.indexes, *plain))
    names = [(one.name, "pip") for one in asked.asked]
    sights = [
        *index_sights(settings, hashed=False),
        *_name_sights(names, known),
        *_internal_sights(asked.asked, settings, known, where="pip"),
        *_url_sights((one.name, one.url, one.is_fixed, "pip") for one in asked.asked if one.url),
    ]
    loose = [line for line in by_conda if not re.search(r"[^=<>!]=|==", line)]
    if loose:
        said = f"{_some(loose)} {_have(loose)} no version here: a lock (`conda list --explicit --md5`) says which files"
        sights.append(Sight("package-no-hash", "warn", said, "dependencies"))
    return _file(path, "conda", (), sights, _unknown((one.name for one in asked.asked), known))


def _is_deep(text: str) -> bool:
    """Return whether YAML is nested as no person's is: the reader in C has no limit of its own and dies of it."""
    depth = most = 0
    for sign in _BRACKETS.findall(text):
        depth = depth + 1 if sign in "[{" else max(0, depth - 1)
        most = max(most, depth)
    return most > 100 or _DEEP_LINE.search(text) is not None


def _of_lock(path: str, lock: LockFile, known: KnownNames) -> ProjectFile:
    without = [one.package.name for one in lock.packages if one.hashed is False]
    sights = [*index_sights(lock.settings, hashed=not without)]
    named = [one for one in lock.packages if one.hashed is not None]
    sights += _name_sights([(one.package.name, "") for one in named], known)
    sights += _url_sights((one.package.name, one.url, bool(one.hashed), "") for one in named if one.url)
    if without:
        said = f"{len(without)} of {counted(len(lock.packages), 'package')} {_have(without)} no hash: {_some(without)}"
        sights.append(Sight("package-no-hash", "warn", said))
    sights += _internal_locked(lock, known)
    packages = [one.package for one in lock.packages if one.package.version and one.hashed is not None]
    return _file(path, f"{lock.kind} lock", packages, sights, _unknown((one.package.name for one in named), known))


def _internal_locked(lock: LockFile, known: KnownNames) -> Iterator[Sight]:
    if lock.kind != "uv" or not lock.settings.asks_public:
        return
    for one in lock.packages:
        if one.hashed is False and known.is_internal(one.package.name):
            yield _internal(one.package.name, "")


def _name_sights(names: Iterable[tuple[str, str]], known: KnownNames) -> Iterator[Sight]:
    for name, where in names:
        other = known.looks_like(name)
        if other:
            said = f"{name[:80]} is in no list of names, and is nearly {other}: is that one meant?"
            yield Sight("package-typosquat", "unknown", said, where)


def _internal_sights(
    asked: Iterable[PackageRequest], settings: IndexSettings, known: KnownNames, where: str = ""
) -> Iterator[Sight]:
    """Yield the names of the site's own packages that a public index could give instead."""
    if settings.closed or not (settings.asks_public or settings.confusable):
        return
    for one in asked:
        if known.is_internal(one.name) and not one.is_fixed and not one.url:
            yield _internal(one.name, where or f"line {one.line}")


def _internal(name: str, where: str) -> Sight:
    said = f"{name[:80]} is a package of this site only, and is looked for in public indexes, where anybody can offer one of that name"
    return Sight("package-confusion", "block", said, where)


def _url_sights(given: Iterable[tuple[str, str, bool, str]]) -> Iterator[Sight]:
    for name, url, fixed, where in given:
        if url.lower().startswith(("http://", "git+http://", "git://", "git+git://")):
            said = f"{name[:80]} comes unencrypted from {shown_url(url)}: anybody on the way can put in another"
            yield Sight("package-index-insecure", "warn" if fixed else "block", said, where)
        elif not fixed and "://" in url and not url.startswith("file:"):
            said = f"{name[:80]} is whatever lies at {shown_url(url)} on that day: neither a commit nor a hash is named"
            yield Sight("package-direct-url", "warn", said, where)


def _hash_sights(asked: tuple[PackageRequest, ...]) -> Iterator[Sight]:
    without = [one for one in asked if not one.is_fixed]
    if not without:
        return
    if len(without) < len(asked) and any(one.hashes for one in asked):
        said = f"{len(without)} of {counted(len(asked), 'requirement')} {_have(without)} no hash: {_some([one.name for one in without])}"
        yield Sight("package-no-hash", "warn", said, f"line {without[0].line}")
        return
    loose = [one.name for one in without if not one.version]
    said = f"no hash says which files are meant by {counted(len(without), 'requirement')}"
    if loose:
        said += f"; no version is named for {_some(loose)}"
    yield Sight("package-no-hash", "warn", said)


def _unreadable(path: str, text: str) -> ProjectFile:
    return _file(path, "unreadable", (), [Sight("package-unreadable", "unknown", text[:200])])


def _file(
    path: str,
    kind: str,
    packages: Iterable[FoundPackage],
    sights: Iterable[Sight],
    unknown: Iterable[str] = (),
) -> ProjectFile:
    return ProjectFile(path, kind, tuple(packages), tuple(dict.fromkeys(sights)), tuple(unknown))


def _unknown(names: Iterable[str], known: KnownNames) -> list[str]:
    return sorted({name for name in names if not known.is_known(name)})


def _some(names: Iterable[Any]) -> str:
    all_of_them = [str(one)[:60] for one in names]
    return ", ".join(all_of_them[:_SHOWN]) + (" ..." if len(all_of_them) > _SHOWN else "")


def _have(names: Any) -> str:
    return "has" if len(names) == 1 else "have"
