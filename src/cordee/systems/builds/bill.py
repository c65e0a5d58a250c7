"""What is in an image: the bill of materials that scan makes, with what only the image and its lock know beside it."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from cordee.core import registry
from cordee.core.draw.clean import clean
from cordee.core.errors import CordeeError, UsageError
from cordee.core.ports import bills
from cordee.core.units import format_size
from cordee.runs.folder import write_atomically
from cordee.systems.builds.lock import BuildPackage

_MOST_SHOWN = 3
_BYTES = "cordee:installed_bytes"


class KnownPackage(NamedTuple):
    """One package of an image; `bytes` is what it takes installed, None where nothing says."""

    kind: str
    name: str
    version: str
    hash: str
    licence: str
    bytes: int | None


class ImageBill(NamedTuple):
    """A bill of materials that was written.

    Attributes:
        path: of its file.
        packages: what it names.
    """

    path: Path
    packages: tuple[KnownPackage, ...]

    def largest(self) -> str:
        """Return the packages that take the most, for people."""
        known = sorted((each for each in self.packages if each.bytes), key=lambda each: -(each.bytes or 0))
        shown = (clean(f"{each.name} {format_size(each.bytes or 0)}") for each in known[:_MOST_SHOWN])
        return ", ".join(shown) or "not known"


def write_image_bill(path: Path, image: Path, about: str, locked: list[BuildPackage], made_s: int = 0) -> ImageBill:
    """Write the bill of materials of an image.

    Args:
        path: of the bill.
        image: a squashfs file.
        about: what people call the image.
        locked: packages whose files' hashes are known.
        made_s: the bill's time, seconds since the epoch, that the same image have the same bill; 0: now.

    Raises:
        CordeeError: nobody here looks into images, or the file cannot be written.
    """
    port: bills.ImageBills | None = registry.offered(bills.PORT)
    if port is None:
        raise CordeeError("no system here looks into images", next="install Cordée whole")
    document, unseen = port.bill(str(image), about)
    if made_s:
        made = datetime.datetime.fromtimestamp(made_s, datetime.UTC)
        document["metadata"]["timestamp"] = made.isoformat(timespec="seconds")
    hashes = {(each.kind, _plain(each.name), each.version, _architecture(each)): each.hash for each in locked}
    packages = tuple(_known(component, hashes) for component in document["components"])
    if unseen:
        notes = [{"name": "cordee:not_looked_at", "value": text} for text in unseen]
        document["metadata"]["component"]["properties"] = notes
    try:
        write_atomically(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n", mode=0o644)
    except CordeeError as error:
        said = error.text.rpartition(": ")[2]
        raise UsageError(
            f"the bill of materials cannot be written: {said}", given=str(path), next="--sbom FILE"
        ) from None
    return ImageBill(path, packages)


def _known(component: dict[str, Any], hashes: dict[tuple[str, str, str, str], str]) -> KnownPackage:
    """Return what is known of a component, and add it to the component."""
    name, version = str(component["name"]), str(component.get("version", ""))
    url = urlsplit(str(component["purl"]))
    kind = url.path.partition("/")[0]
    architecture = parse_qs(url.query).get("arch", [""])[0] if kind == "deb" else ""
    digest = hashes.get((kind, _plain(name), version, architecture), "")
    if digest and "hashes" not in component:
        component["hashes"] = [{"alg": "SHA-256", "content": digest.partition(":")[2]}]
    sizes = [each["value"] for each in component.get("properties", ()) if each["name"] == _BYTES]
    size = int(sizes[0]) if sizes else None
    said = [{**each, **each.get("license", {})} for each in component.get("licenses", ())]
    told = ", ".join(str(each.get("id") or each.get("name") or each.get("expression")) for each in said)
    return KnownPackage(kind, name, version, digest, told, size)


def _architecture(package: BuildPackage) -> str:
    """Return what a package of Debian is for, by its file's name: one version may be in an image for two."""
    return package.file.removesuffix(".deb").rpartition("_")[2] if package.kind == "deb" else ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
