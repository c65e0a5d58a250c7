"""A package, wherever it was met, and what was seen beside packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class FoundPackage(NamedTuple):
    """A package that is installed, locked or asked for.

    Attributes:
        name: as it is written there.
        version: empty where none is named.
        kind: as in package URLs: `pypi`, `conda`, `deb`, `rpm`, `apk`.
        path: of what names it.
        source: the package that it was built from, where that has another name.
        vendor: of a distribution's package, as in package URLs: `debian`; empty: nothing says.
        requires: names of packages that it needs.
        licence: an SPDX expression, or what the package says instead; several on a line each.
        hashes: as `sha256:...`.
        architecture: as its system writes it.
        distribution: and its release, as in package URLs: `debian-12`.
        bytes: what it takes installed; 0: nothing says.
    """

    name: str
    version: str
    kind: str = "pypi"
    path: str = ""
    source: str = ""
    vendor: str = ""
    requires: tuple[str, ...] = ()
    licence: str = ""
    hashes: tuple[str, ...] = ()
    architecture: str = ""
    distribution: str = ""
    bytes: int = 0


class FoundFolder(NamedTuple):
    """Some folders and files of an environment or an image, wherever they are.

    Attributes:
        names: returns the names in a folder; none where there is no such folder.
        read: returns a file of at most so many bytes; None where there is none, it is no regular file, or longer.
    """

    names: Callable[[str], list[str]]
    read: Callable[[str, int], bytes | None]
