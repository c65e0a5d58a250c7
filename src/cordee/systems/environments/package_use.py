"""Packages of an image by the files that are theirs, and how much of each a command has opened."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import parse_json, regular
from cordee.machine.squashfs.reader import SquashfsFault, SquashfsNode, SquashfsReader

SCHEMA = "cordee.environment-unused/1"
_DPKG = re.compile(r"var/lib/dpkg/info/([^/:]+)(?::[^/]+)?\.list")
_WHEEL = re.compile(r"((?:.*/)?)([^/]+)-([^/-]+)\.dist-info/RECORD")
_CONDA = re.compile(r"((?:.*/)?)conda-meta/[^/]+\.json")
_BYTE_CODE = re.compile(r"(.*/)?__pycache__/([^/]+?)\.[^/.]+(?:\.opt-\d)?\.pyc")
# Files that describe packages: all are read when a program asks which there are.
_ABOUT = re.compile(r"(?:.*/)?[^/]+\.(?:dist|egg)-info/.*|(?:.*/)?conda-meta/.*|var/lib/dpkg/.*|usr/share/doc/.*")
_LIST_BYTES, _MOST_LINKS, _FIRST_LINE_BYTES = 64 << 20, 40, 256


class PackageUse(NamedTuple):
    """What a command has opened of a package.

    Attributes:
        kind: `pypi`, `conda`, `deb`; empty: files that no package lists.
        name, version: of the package; the version where its file's name tells.
        bytes, files: of it in the image.
        opened_bytes, opened_files: of these, whole files.
    """

    kind: str
    name: str
    version: str
    bytes: int
    files: int
    opened_bytes: int
    opened_files: int


class ImageFiles:
    """Names in a squashfs file, and whose they are.

    Raises:
        CordeeError: the file cannot be read.
    """

    def __init__(self, image: Path) -> None:
        self._sizes: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._programs: dict[str, SquashfsNode] = {}
        self._image = image
        lists: list[tuple[tuple[str, str, str], str, list[str]]] = []
        with self._reader() as reader:
            for node in reader.walk():
                if node.kind == "file":
                    self._sizes[node.path] = node.size
                    lists += _listed(reader, node)
                    if node.mode & 0o111:
                        self._programs[node.path] = node
                elif node.kind == "link":
                    self._links[node.path] = reader.target(node)
        self._folders: dict[str, str] = {}
        self._owners = {
            self.real(posixpath.join(folder, name)): package for package, folder, names in lists for name in names
        }

    @contextlib.contextmanager
    def _reader(self) -> Iterator[SquashfsReader]:
        try:
            descriptor = regular(self._image)
            try:
                yield SquashfsReader(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, SquashfsFault) as error:
            raise CordeeError(f"the image cannot be read: {error}", given=str(self._image)) from None

    def _interpreters(self, run: Iterable[str]) -> set[str]:
        """Return what the kernel opens of itself to run scripts: their interpreters, which may be scripts (execve(2))."""
        found: set[str] = set()
        rest = {self.real(path) for path in run}
        with self._reader() as reader:
            while rest:
                node = self._programs.get(rest.pop())
                line = reader.read(node, _FIRST_LINE_BYTES).partition(b"\n")[0] if node else b""
                words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
                more = {self.real(words[0])} - found if words else set()
                found |= more
                rest |= more
        return found

    def real(self, path: str) -> str:
        """Return where a path leads in the image, without a slash before."""
        folder, _, name = posixpath.normpath("/" + path)[1:].rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._followed(folder)
        return self._followed(f"{self._folders[folder]}/{name}".lstrip("/"))

    def _followed(self, path: str) -> str:
        for _ in range(_MOST_LINKS):
            parts = path.split("/")
            for count in range(1, len(parts) + 1):
                here = "/".join(parts[:count])
                if here in self._links:
                    at = posixpath.join("/", posixpath.dirname(here), self._links[here], *parts[count:])
                    path = posixpath.normpath(at).lstrip("/")
                    break
            else:
                return path
        return path

    def use(self, opened: Iterable[str], run: Iterable[str] = ()) -> list[PackageUse]:
        """Return all packages, those with the most bytes that were not opened first.

        Args:
            opened: paths inside.
            run: those of them that are programs and were run.
        """
        seen = {self.real(path) for path in opened} | self._interpreters(run)
        found: dict[tuple[str, str, str], list[int]] = {}
        for path, size in self._sizes.items():
            code = _BYTE_CODE.fullmatch(path)
            owner = self._owners.get(path) or (self._owners.get(f"{code[1] or ''}{code[2]}.py") if code else None)
            counts = found.setdefault(owner or ("", "", ""), [0, 0, 0, 0])
            used = path in seen and not _ABOUT.fullmatch(path)
            for at, more in enumerate((size, 1, size * used, int(used))):
                counts[at] += more
        uses = [PackageUse(*package, *counts) for package, counts in found.items()]
        return sorted(uses, key=lambda each: (each.opened_bytes - each.bytes, each.name))


def _listed(reader: SquashfsReader, node: SquashfsNode) -> Iterator[tuple[tuple[str, str, str], str, list[str]]]:
    """Yield the package that a file lists: what it is, from which folder on, and its files."""
    if system := _DPKG.fullmatch(node.path):
        lines = reader.read(node, _LIST_BYTES).decode("utf-8", "surrogateescape").splitlines()
        yield ("deb", system[1], ""), "/", lines
    elif wheel := _WHEEL.fullmatch(node.path):
        lines = reader.read(node, _LIST_BYTES).decode("utf-8", "surrogateescape").splitlines()
        names = [line.rsplit(",", 2)[0].strip('"') for line in lines]
        yield ("pypi", wheel[2].replace("_", "-"), wheel[3]), f"/{wheel[1]}", names
    elif prefix := _CONDA.fullmatch(node.path):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = parse_json(reader.read(node, _LIST_BYTES))
            yield ("conda", str(said["name"]), str(said["version"])), f"/{prefix[1]}", list(map(str, said["files"]))
