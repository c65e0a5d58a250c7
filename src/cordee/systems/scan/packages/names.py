"""Names of packages: those that are widely used, those of a site, and those that only look like one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from cordee.core.documents.texts import text_of
from cordee.core.errors import UsageError
from cordee.machine.foreign_files import read_regular

_LEAST_LETTERS = 5
_LIMIT_BYTES = 8 << 20
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def normal(name: str) -> str:
    """Return a name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


class KnownNames(NamedTuple):
    """Which names are known.

    Attributes:
        known: widely used ones, and those of the site, normalised.
        aims: those of them that others are made to look like.
        internal: patterns of names that only the site's own index has, `*` at the end for all that begin so.
    """

    known: frozenset[str]
    aims: frozenset[str]
    internal: tuple[str, ...] = ()

    def is_internal(self, name: str) -> bool:
        """Return whether a name is one of the site's own."""
        own = normal(name)
        return any(own.startswith(one[:-1]) if one.endswith("*") else own == one for one in self.internal)

    def is_known(self, name: str) -> bool:
        """Return whether a name is widely used, or the site's."""
        return normal(name) in self.known or self.is_internal(name)

    def looks_like(self, name: str) -> str | None:
        """Return the known name that an unknown one could be taken for: one letter more, less, other or exchanged."""
        own = normal(name)
        if self.is_known(own):
            return None
        close = [one for one in _edits(own) if one in self.aims and len(one) >= _LEAST_LETTERS]
        joined = own.replace("-", "")
        close += [one for one in _joined(self.aims).get(joined, ()) if one != own]
        return min(close, key=lambda one: (one[0] != own[0], one), default=None)


def _edits(name: str) -> Iterator[str]:
    """Yield all names that are one edit away."""
    if not _LEAST_LETTERS <= len(name) <= 60:
        return
    for at in range(len(name) + 1):
        head, tail = name[:at], name[at:]
        if tail and not (len(tail) == 1 and tail.isdigit()):  # elasticsearch8
            yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in _LETTERS:
            if tail and not (letter.isdigit() and tail[0].isdigit()):  # boto2 and boto3, cu12 and cu13
                yield head + letter + tail[1:]
            if not letter.isdigit():
                yield head + letter + tail


@cache
def _joined(aims: frozenset[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in aims:
        joined = one.replace("-", "")
        if len(joined) >= _LEAST_LETTERS:
            found.setdefault(joined, []).append(one)
    return found


@cache
def _shipped() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that come with Cordée: those that others are made to look like, and the rest."""
    aims, rest = (files(__package__) / "known_names.txt").read_text().split("\n# ")[:2]
    return frozenset(aims.splitlines()[1:]), frozenset(rest.splitlines()[1:])


def known_names(path: str | None = None, internal: Iterable[str] = ()) -> KnownNames:
    """Return the names that come with Cordée with those of a site.

    Args:
        path: of the site's list, one name a line, `#` before remarks.
        internal: the site's own packages, as `corp-*`.

    Raises:
        UsageError: the list cannot be read, or has a line that is no name. DocumentError: its encoding is not clear.
    """
    aims, rest = _shipped()
    names: set[str] = set()
    if path:
        try:
            text = text_of(read_regular(Path(path).expanduser(), limit_bytes=_LIMIT_BYTES), path)
        except OSError as error:
            raise UsageError(
                f"the list of packages cannot be read: {error.strerror or error}",
                given=path,
                next="correct [scan] packages in the profile: a text file, one name a line",
            ) from None
        for number, line in enumerate(text.split("\n"), 1):
            word = line.partition("#")[0].strip()
            if word and not _NAME.fullmatch(word):
                raise UsageError(
                    "a line of the list is no name of a package",
                    given=f"{path}:{number}: {word[:80]}",
                    next="correct it",
                )
            if word:
                names.add(normal(word))
    return KnownNames(
        rest | aims | names,
        aims | names,
        tuple(normal(one.rstrip("*")) + "*" if one.endswith("*") else normal(one) for one in internal),
    )
