"""Where installers take packages from: what options, `pip.conf`, `uv.toml` and `pyproject.toml` say, and what is wrong with it."""

from __future__ import annotations

import configparser
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cordee.systems.scan.node.verdict import Sight

_PUBLIC = ("pypi.org", "pypi.python.org", "files.pythonhosted.org", "anaconda.org", "conda.anaconda.org")
_PYPI = "https://pypi.org/simple"
_SAFE_PRIORITIES = ("supplemental", "explicit", "default")


class NamedIndex(NamedTuple):
    """One index that an installer is told of.

    Attributes:
        url: of it.
        where: in the file, such as `line 3`.
        extra: whether it is asked beside another, and the higher version wins.
    """

    url: str
    where: str
    extra: bool = False

    @property
    def host(self) -> str:
        """The host, empty where there is none, as of a folder."""
        try:
            return (urlsplit(self.url).hostname or "").lower()
        except ValueError:
            return ""


class IndexSettings(NamedTuple):
    """What one file says of indexes.

    Attributes:
        indexes: all, in their order.
        trusted: hosts whose certificate is not looked at, with their places.
        closed: whether nothing but what the file names is asked (`--no-index`).
    """

    indexes: tuple[NamedIndex, ...] = ()
    trusted: tuple[tuple[str, str], ...] = ()
    closed: bool = False

    @property
    def confusable(self) -> tuple[NamedIndex, ...]:
        """The indexes beside others, of which the highest version wins whoever offers it."""
        return tuple(one for one in self.indexes if one.extra)

    @property
    def asks_public(self) -> bool:
        """Whether names are looked for in a public index."""
        main = [one for one in self.indexes if not one.extra]
        public = any(one.host in _PUBLIC for one in self.indexes)
        return not self.closed and (public or not main)


def shown_url(url: str) -> str:
    """Return an address without the password that may stand in it, cut to what a line takes."""
    return re.sub(r"//[^/@]*@", "//***@", url)[:160]


def index_sights(settings: IndexSettings, *, hashed: bool) -> Iterator[Sight]:
    """Yield what is wrong with the indexes of a file.

    Args:
        settings: of the file.
        hashed: whether each package that it names is held to a hash, so that nobody else's is taken.
    """
    for one in settings.indexes:
        if one.url.lower().startswith(("http://", "ftp://")) and not _is_near(one.host):
            said = f"packages come unencrypted from {shown_url(one.url)}: anybody on the way can put in others"
            yield Sight("package-index-insecure", "warn" if hashed else "block", said, one.where)
    for one in settings.confusable if not hashed else ():
        said = f"{shown_url(one.url)} is asked beside another index, and the highest version wins, whoever offers it"
        yield Sight("package-extra-index", "warn", said, one.where)
    for host, where in settings.trusted:
        yield Sight("package-trusted-host", "warn", f"the certificate of {host[:120]} is not looked at", where)


def pip_settings(text: str) -> IndexSettings | None:
    """Return what a `pip.conf` says; None: it is none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    words: list[tuple[str, str]] = []
    for section in parser.sections():
        if section in ("global", "install", "download", "wheel", "env", ":env:"):
            words += [(key.replace("_", "-"), value) for key, value in parser.items(section) if value]
    return option_settings(
        (f"--{key}", word, f"{key}")
        for key, value in words
        for word in (value.split() if key != "no-index" else [value])
    )


def option_settings(options: Iterable[tuple[str, str, str]]) -> IndexSettings:
    """Return what options of pip say, given as (option, value, place)."""
    indexes, trusted, closed = [], [], False
    for option, value, where in options:
        match option:
            case "--index-url" | "-i" | "--pypi-url":
                indexes.append(NamedIndex(value, where))
            case "--extra-index-url" | "--find-links" | "-f":
                indexes.append(NamedIndex(value, where, extra=option == "--extra-index-url" or "://" in value))
            case "--trusted-host":
                trusted.append((value, where))
            case "--no-index":
                closed = closed or value.lower() not in ("false", "no", "0", "off")
    return IndexSettings(tuple(indexes), tuple(trusted), closed)


def variable_settings(env: Mapping[str, str]) -> IndexSettings:
    """Return what variables of pip and uv say."""
    names = {
        "PIP_INDEX_URL": "--index-url",
        "UV_DEFAULT_INDEX": "--index-url",
        "UV_INDEX_URL": "--index-url",
        "PIP_EXTRA_INDEX_URL": "--extra-index-url",
        "UV_EXTRA_INDEX_URL": "--extra-index-url",
        "PIP_TRUSTED_HOST": "--trusted-host",
        "UV_INSECURE_HOST": "--trusted-host",
        "PIP_FIND_LINKS": "--find-links",
    }
    return option_settings((names[key], word, key) for key in names if key in env for word in env[key].split())


def uv_settings(tables: Any) -> IndexSettings:
    """Return what a `uv.toml`, or `[tool.uv]`, says. uv takes a name from the first index that has it, unless it is told not to."""
    tables = tables if isinstance(tables, dict) else {}
    pip = tables.get("pip") if isinstance(tables.get("pip"), dict) else {}
    unsafe = any("unsafe" in str(part.get("index-strategy", "")) for part in (tables, pip))
    options = []
    for part in (tables, pip):
        for key in ("index-url", "extra-index-url", "find-links"):
            options += [(f"--{key}", word, key) for word in _words(part.get(key))]
        options += [("--trusted-host", word, "allow-insecure-host") for word in _words(part.get("allow-insecure-host"))]
        options += [("--no-index", "true", "no-index")] * (part.get("no-index") is True)
    said = option_settings(options)
    named = [
        NamedIndex(str(one.get("url", "")), f"index {one.get('name', number)}", extra=not one.get("default"))
        for number, one in enumerate(_tables(tables.get("index")), 1)
        if not one.get("explicit")
    ]
    indexes = tuple(one._replace(extra=one.extra and unsafe) for one in (*said.indexes, *named))
    return said._replace(indexes=indexes)


def poetry_settings(tables: Any) -> IndexSettings:
    """Return what `[tool.poetry]` says: sources of one rank are asked together."""
    sources = _tables(tables.get("source") if isinstance(tables, dict) else None)
    alike = [one for one in sources if str(one.get("priority", "primary")) not in _SAFE_PRIORITIES]
    return IndexSettings(
        tuple(
            NamedIndex(
                str(one.get("url", _PYPI)),
                f"source {one.get('name', number)}",
                extra=len(alike) > 1 and one in alike[1:],
            )
            for number, one in enumerate(sources, 1)
        )
    )


def _words(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [one for one in value or () if isinstance(one, str)]
        if isinstance(value, list)
        else []
    )


def _tables(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _is_near(host: str) -> bool:
    """Return whether a host is this machine: nobody stands on the way to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")
