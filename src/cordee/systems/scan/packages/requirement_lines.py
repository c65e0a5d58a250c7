"""Files of requirements as pip reads them: what they ask for, from where, and held to which hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cordee.systems.scan.packages.indexes import IndexSettings, option_settings

_HASH = re.compile(r"--hash[= ](?P<hash>[a-z0-9]+:[0-9a-fA-F]+)")
_PER_LINE = re.compile(r"\s--(?:global-option|config-settings?)[= ].*")
_REMARK = re.compile(r"(?:^|\s)#.*$")
_OPTION = re.compile(r"(?P<name>--[A-Za-z][a-z-]*|-[A-Za-z])[= ]*(?P<value>.*)$")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_COMMIT = re.compile(r"@[0-9a-f]{40}(?:$|[#?&])")
_FLAGS = ("--no-index", "--require-hashes", "--pre", "--prefer-binary")
_OPTIONS = (
    "-i", "--index-url", "--pypi-url", "--extra-index-url", "--no-index", "-c", "--constraint", "-r", "--requirement", "-e",
    "--editable", "-f", "--find-links", "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre",
    "--trusted-host", "--use-feature",
)  # fmt: skip


class PackageRequest(NamedTuple):
    """One line of requirements.

    Attributes:
        name: of the package.
        specifier: as `>=1.2`; empty: any version.
        version: the only one that fits, empty where there are several.
        hashes: that it is held to.
        url: where it is taken from, where the line says so.
        line: in the file.
    """

    name: str
    specifier: str
    version: str
    hashes: tuple[str, ...]
    url: str
    line: int

    @property
    def is_fixed(self) -> bool:
        """Whether an address names one content for ever: a hash, or a commit."""
        return bool(self.hashes) or "#sha256=" in self.url or bool(_COMMIT.search(self.url))


class RequirementFile(NamedTuple):
    """What a file asks for.

    Attributes:
        asked: its requirements.
        settings: its indexes.
        included: files that it names by `-r` and `-c`.
        unreadable: lines that nobody can read, as (number, text).
    """

    asked: tuple[PackageRequest, ...]
    settings: IndexSettings
    included: tuple[str, ...]
    unreadable: tuple[tuple[int, str], ...]


def read_requirements(text: str) -> RequirementFile:
    """Return what the lines of a file of requirements say."""
    asked, options, included, unreadable = [], [], [], []
    for number, line in _joined(text):
        if line.startswith("-"):
            match = _OPTION.match(line)
            name, value = (match["name"], match["value"].strip().strip("\"'")) if match else (line, "")
            if name in ("-r", "--requirement", "-c", "--constraint"):
                included.append(value)
            elif name in ("-e", "--editable"):
                egg = _EGG.search(value)
                if "://" in value:
                    asked.append(PackageRequest(egg[1] if egg else value, "", "", (), value, number))
            elif name in _OPTIONS:
                options.append((name, value or ("true" if name in _FLAGS else ""), f"line {number}"))
            else:
                unreadable.append((number, line))
            continue
        one = _asked(line, number)
        if one is not None:
            asked.append(one)
        elif not _is_path(line):
            unreadable.append((number, line))
    return RequirementFile(tuple(asked), option_settings(options), tuple(included), tuple(unreadable))


def is_requirements(text: str) -> bool:
    """Return whether a text of any name is a file of requirements: all lines are such, and one says more than a name."""
    if "\0" in text or len(text) > 1 << 20:
        return False
    said = False
    for number, line in _joined(text):
        if line.startswith("-"):
            match = _OPTION.match(line)
            if match is None or match["name"] not in _OPTIONS:
                return False
            said = True
            continue
        one = _asked(line, number)
        if one is None:
            return False
        said = said or bool(one.specifier or one.url or one.hashes)
    return said


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) with lines that go on joined, and remarks left out."""
    begun, parts = 0, []
    for number, line in enumerate((*text.splitlines(), ""), 1):
        begun = begun or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            parts.append(line[:-1] + " ")
            continue
        whole = _REMARK.sub("", "".join([*parts, line])).strip()
        if whole:
            yield begun, whole
        begun, parts = 0, []


def _asked(line: str, number: int) -> PackageRequest | None:
    hashes = tuple(_HASH.findall(line))
    plain = _PER_LINE.sub("", _HASH.sub("", line)).strip()
    if re.match(r"[a-z+]+://", plain):
        egg = _EGG.search(plain)
        name = egg[1] if egg else _of_file(plain)
        return PackageRequest(name, "", "", hashes, plain, number)
    from packaging.requirements import InvalidRequirement, Requirement  # deferred: few jobs have such lines

    try:
        one = Requirement(plain)
    except InvalidRequirement:
        return None
    pinned = [
        spec.version for spec in one.specifier if spec.operator in ("==", "===") and not spec.version.endswith(".*")
    ]
    return PackageRequest(one.name, str(one.specifier), pinned[0] if pinned else "", hashes, one.url or "", number)


def _of_file(url: str) -> str:
    """Return the name of the package in an address of a wheel or archive, else the address's last part."""
    last = re.split(r"[?#]", url)[0].rstrip("/").rpartition("/")[2]
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9._]*?)-\d", last)
    return match[1] if match else last.removesuffix(".git").partition("@")[0]


def _is_path(line: str) -> bool:
    return line.startswith((".", "/", "~")) or line.endswith((".whl", ".tar.gz", ".zip"))
