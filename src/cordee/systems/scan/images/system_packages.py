"""The databases of packages that systems keep: dpkg's and apk's texts, and RPM's headers in SQLite."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing

from cordee.systems.scan.packages.model import FoundPackage

_MOST_PACKAGES, _MOST_ENTRIES = 200_000, 65_536
_SQLITE = b"SQLite format 3\0"
_RPM_ENTRY = struct.Struct(">4I")
_NAME, _VERSION, _RELEASE, _EPOCH, _LICENCE, _ARCHITECTURE, _SOURCE = 1000, 1001, 1002, 1003, 1014, 1022, 1044
_SIZES = {(1009, 4): ">I", (5009, 5): ">Q"}  # bytes installed; the second where 32 bits are too few
# By ID of os-release, where package URLs have another name.
_VENDORS = {"rhel": "redhat", "opensuse-leap": "opensuse"}


def vendor_of(system: dict[str, str]) -> str:
    """Return whose packages those of a system are, as package URLs name it; empty: it does not say.

    Args:
        system: what its os-release says.
    """
    name = system.get("ID", "").lower()[:40]
    return _VENDORS.get(name, name)


def debian_packages(status: bytes, path: str, vendor: str) -> Iterator[FoundPackage]:
    """Yield the packages that dpkg has installed, by its status file."""
    for number, said in enumerate(_paragraphs(status, ": ", _DEBIAN)):
        if number > _MOST_PACKAGES:
            return
        state = said.get("Status", "").rpartition(" ")[
            2
        ]  # the words before it are what is wanted, and whether all is well
        if not said.get("Package") or state in ("not-installed", "config-files"):
            continue
        source = said.get("Source", "").partition(" ")[0]
        yield FoundPackage(
            said["Package"][:200], said.get("Version", "")[:200], "deb", path, source[:200], vendor,
            architecture=said.get("Architecture", "")[:40], bytes=_count(said.get("Installed-Size", "")) << 10,
        )  # fmt: skip


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


_DEBIAN = ("Package", "Version", "Status", "Source", "Architecture", "Installed-Size")


def alpine_packages(installed: bytes, path: str, vendor: str) -> Iterator[FoundPackage]:
    """Yield the packages that apk has installed."""
    for number, said in enumerate(_paragraphs(installed, ":", ("P", "V", "o", "L", "A", "I"))):
        if number > _MOST_PACKAGES:
            return
        if said.get("P"):
            yield FoundPackage(
                said["P"][:200], said.get("V", "")[:200], "apk", path, said.get("o", "")[:200], vendor,
                licence=said.get("L", "")[:120], architecture=said.get("A", "")[:40], bytes=_count(said.get("I", "")),
            )  # fmt: skip


def rpm_packages(database: bytes, path: str, vendor: str) -> Iterator[FoundPackage]:
    """Yield the packages that RPM has installed, by its SQLite database.

    Raises:
        ValueError: it is none, or damaged.
    """
    if not database.startswith(_SQLITE):
        raise ValueError(
            "RPM's database is of its older form (Berkeley DB or ndb); `rpmdb --rebuilddb` makes the newer one"
        )
    # In memory there is no log beside it, which these two bytes would ask for.
    image = database[:18] + b"\1\1" + database[20:]
    try:
        with closing(sqlite3.connect(":memory:")) as data:
            data.deserialize(image)
            for number, (blob,) in enumerate(data.execute("select blob from Packages")):
                if number > _MOST_PACKAGES:
                    return
                yield _rpm_package(bytes(blob), path, vendor)
    except (sqlite3.Error, TypeError) as error:
        raise ValueError(f"RPM's database is damaged: {error}") from None


def _rpm_package(header: bytes, path: str, vendor: str) -> FoundPackage:
    try:
        entries, size = struct.unpack_from(">II", header)
        if entries > _MOST_ENTRIES or 8 + 16 * entries + size > len(header):
            raise ValueError("a header of RPM's database is damaged")
        data = header[8 + 16 * entries :]
        found: dict[int, str] = {}
        size_bytes = 0
        for at in range(entries):
            tag, kind, offset, _ = _RPM_ENTRY.unpack_from(header, 8 + 16 * at)
            if tag in (_NAME, _VERSION, _RELEASE, _LICENCE, _ARCHITECTURE, _SOURCE) and kind in (6, 9):
                found[tag] = data[offset : offset + 400].partition(b"\0")[0].decode("utf-8", "replace")
            elif tag == _EPOCH and kind == 4:
                found[tag] = str(struct.unpack_from(">I", data, offset)[0])
            elif form := _SIZES.get((tag, kind)):
                size_bytes = max(size_bytes, struct.unpack_from(form, data, offset)[0])
    except struct.error:
        raise ValueError("a header of RPM's database is damaged") from None
    epoch = f"{found[_EPOCH]}:" if _EPOCH in found else ""
    version = f"{epoch}{found.get(_VERSION, '')}-{found.get(_RELEASE, '')}"
    source = found.get(_SOURCE, "").rsplit("-", 2)[0]
    return FoundPackage(
        found.get(_NAME, "")[:200], version[:200], "rpm", path, source, vendor,
        licence=found.get(_LICENCE, "")[:120], architecture=found.get(_ARCHITECTURE, "")[:40], bytes=size_bytes,
    )  # fmt: skip


def _paragraphs(content: bytes, colon: str, keys: tuple[str, ...]) -> Iterator[dict[str, str]]:
    said: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            if said:
                yield said
                said = {}
            continue
        key, found, value = line.partition(colon)
        if found and key in keys:
            said.setdefault(key, value.strip())
    if said:
        yield said
