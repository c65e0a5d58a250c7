"""The lock of a recipe: every package by version and hash, the base by its digest, the time that files are given."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import write_atomically
from cordee.systems.builds.recipe import digest_of

MAX_TIME = 2**32 - 1
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[!-~]+")
LOCK_SCHEMA = "cordee.lock/1"


@dataclass(frozen=True)
class BuildPackage:
    """One package that goes into the image.

    Attributes:
        kind: as in package URLs: `deb`, `conda`, `pypi`; `tool`: it installs others and is not in the image.
        name, version: of the package.
        hash: `sha256:...` of its file.
        file: its name.
        bytes: of the file.
        url: where it came from, without a login; empty: the index of the machine says.
    """

    kind: str
    name: str
    version: str
    hash: str
    file: str
    bytes: int
    url: str = ""


@dataclass
class BuildLock:
    """What a lock file says.

    Attributes:
        epoch: seconds; the time of files that a build makes (SOURCE_DATE_EPOCH).
        base: `image`, `digest` and `architecture` of what the image begins with.
        parts: for each part the digest of what it was resolved from: with another, it is resolved anew.
        packages: of all parts, in their order.
        copies: `from`, `to` and `hash` of what was copied when the layers were made.
        layers: `step` and `digest` of each layer that was made from this lock first.
        image: `digest` of the image that was made last, and those of the `recipe` and the `packages` that it was made from; `pushed`: what a registry calls it.
    """

    epoch: int = 0
    base: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    packages: list[BuildPackage] = field(default_factory=list)
    copies: list[dict[str, str]] = field(default_factory=list)
    layers: list[dict[str, str]] = field(default_factory=list)
    image: dict[str, str] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[BuildPackage]:
        """Return the packages of some kinds."""
        return [package for package in self.packages if package.kind in kinds]

    def replace(self, kinds: tuple[str, ...], packages: list[BuildPackage]) -> None:
        """Put packages in the place of all of these kinds."""
        self.packages = [each for each in self.packages if each.kind not in kinds] + packages

    def packages_digest(self) -> str:
        """Return what tells the base and the packages from others."""
        return digest_of([self.base.get("digest"), *(package.hash for package in self.packages)])

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "schema": LOCK_SCHEMA,
            "source_date_epoch": self.epoch,
            "base": self.base,
            "parts": self.parts,
            "packages": [asdict(package) for package in self.packages],
            "copies": self.copies,
            "layers": self.layers,
            "image": self.image,
        }


def read_lock(path: Path) -> BuildLock | None:
    """Return the lock in a file, None where there is none.

    Raises:
        UsageError: it is no lock, or that of a newer Cordée.
    """
    try:
        document = read_json(path)
        if document["schema"] != LOCK_SCHEMA:
            raise ValueError(f"its schema is {document['schema']}")
        if document["base"] and not DIGEST.fullmatch(document["base"]["digest"]):
            raise ValueError("the base has no digest")
        return BuildLock(
            _epoch(document["source_date_epoch"]),
            {str(key): str(value) for key, value in document["base"].items()},
            {str(key): str(value) for key, value in document["parts"].items()},
            [_sound(BuildPackage(**each)) for each in document["packages"]],
            [_texts(each, "from", "to", "hash") for each in document.get("copies", ())],
            [_texts(each, "step", "digest") for each in document.get("layers", ())],
            {str(key): str(value) for key, value in document.get("image", {}).items()},
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the lock cannot be read: {error}",
            given=str(path),
            allowed=f"a document of the schema {LOCK_SCHEMA}",
            next="restore it, or remove it and run `cordee env lock`",
        ) from None


def _texts(entry: Any, *keys: str) -> dict[str, str]:
    return {key: str(entry[key]) for key in keys}


def _epoch(given: Any) -> int:
    """Return a time as squashfs files can have it.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(given, int) or not 0 <= given <= MAX_TIME:
        raise ValueError(f"source_date_epoch is {given}")
    return given


def _sound(package: BuildPackage) -> BuildPackage:
    """Return a package as it is: a lock may come from somebody else, and its words become paths and command lines.

    Raises:
        ValueError: they are no words of a package.
    """
    words = [package.kind, package.name, package.version, package.file, *([package.url] if package.url else [])]
    if not DIGEST.fullmatch(package.hash) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        raise ValueError(f"{package.name!r} is no package with a file and a hash")
    if "/" in package.file or any(word.startswith(("-", ".")) for word in words):
        raise ValueError(f"{package.file!r} is no name of a file")
    return package


def write_lock(path: Path, lock: BuildLock) -> None:
    """Write a lock, whole or not at all.

    Raises:
        UsageError: the folder cannot be written.
    """
    try:
        write_atomically(path, json.dumps(lock.document(), indent=1, ensure_ascii=False) + "\n", mode=0o644)
    except CordeeError as error:
        raise UsageError(
            f"the lock cannot be written: {error.text.rpartition(': ')[2]}",
            given=str(path),
            next="copy the EDF to a folder of your own; its lock lies beside it",
        ) from None
