"""Bills of materials as CycloneDX 1.6 (ECMA-424): what is in an environment, a project or an image."""

from __future__ import annotations

import datetime
import json
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from cordee import __version__
from cordee.core.errors import CordeeError, UsageError
from cordee.runs.folder import write_atomically
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.names import normal

_HASHES = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512", "sha1": "SHA-1", "md5": "MD5"}
_DIGITS = {"SHA-256": 64, "SHA-384": 96, "SHA-512": 128, "SHA-1": 40, "MD5": 32}


def package_url(package: FoundPackage) -> str:
    """Return a package's URL (https://github.com/package-url/purl-spec)."""
    name = normal(package.name) if package.kind == "pypi" else package.name
    namespace = f"{quote(package.vendor or 'linux', safe='')}/" if package.kind in ("deb", "rpm", "apk") else ""
    version = f"@{quote(package.version, safe='.+~-')}" if package.version else ""
    words = {
        "arch": package.architecture,
        "distro": package.distribution,
        "upstream": package.source if package.kind in ("deb", "rpm", "apk") else "",
    }
    qualifiers = "&".join(f"{key}={quote(value, safe='.-_')}" for key, value in words.items() if value)
    url = f"pkg:{package.kind}/{namespace}{quote(name, safe='.-_+')}{version.replace('+', '%2B')}"
    return url + (f"?{qualifiers}" if qualifiers else "")


def bill(packages: Iterable[FoundPackage], about: str) -> dict[str, Any]:
    """Return the bill of materials of packages: the same packages make the same bill, apart from its time.

    Args:
        packages: each once, however often it is there.
        about: what they are of.
    """
    by_url: dict[str, FoundPackage] = {}
    for one in packages:
        by_url.setdefault(package_url(one), one)
    order = sorted(by_url)
    own = {normal(by_url[url].name): url for url in order if by_url[url].kind == "pypi"}
    name = os.path.basename(os.path.abspath(about)) or "root"
    content = json.dumps([name, *order])
    made = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now(datetime.UTC).timestamp())
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(made, datetime.UTC).isoformat(timespec="seconds"),
            "tools": {"components": [{"type": "application", "name": "cordee", "version": __version__}]},
            "component": {"type": "application", "bom-ref": "root", "name": name},
        },
        "components": [_component(url, by_url[url]) for url in order],
        "dependencies": [
            {"ref": "root", "dependsOn": order},
            *(
                {
                    "ref": url,
                    "dependsOn": sorted(
                        {own[need] for need in map(normal, by_url[url].requires) if need in own} - {url}
                    ),
                }
                for url in order
            ),
        ],
    }


def write_bill(path: str, packages: Iterable[FoundPackage], about: str) -> int:
    """Write a bill of materials and return how many components it has.

    Raises:
        UsageError: the file cannot be written.
    """
    document = bill(packages, about)
    try:
        write_atomically(Path(path), json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except CordeeError as error:
        said = error.text.rpartition(": ")[2]
        raise UsageError(
            f"the bill of materials cannot be written: {said}", given=path, next="name another file"
        ) from None
    return len(document["components"])


def _licences(said: list[str]) -> list[dict[str, Any]]:
    """Return licences by their SPDX identifiers where they are such; one that is an expression stands alone."""
    found: list[dict[str, Any]] = []
    for text in said:
        try:
            known = str(canonicalize_license_expression(text))
        except InvalidLicenseExpression:
            found.append({"license": {"name": text}})
            continue
        if re.fullmatch(r"(?!LicenseRef-)[\w.-]+", known):
            found.append({"license": {"id": known}})
        else:
            found.append({"expression": known} if len(said) == 1 else {"license": {"name": known}})
    return found


def _component(url: str, package: FoundPackage) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "bom-ref": url, "name": package.name, "purl": url}
    if package.version:
        component["version"] = package.version
    if package.licence:
        component["licenses"] = _licences(package.licence.split("\n"))
    hashes = []
    for one in package.hashes if len(package.hashes) == 1 else ():  # several are those of several files
        kind, _, digits = one.rpartition(":")
        name = _HASHES.get(kind, "")
        if name and len(digits) == _DIGITS[name] and not set(digits.lower()) - set("0123456789abcdef"):
            hashes.append({"alg": name, "content": digits.lower()})
    if hashes:
        component["hashes"] = hashes
    if package.bytes:
        component["properties"] = [{"name": "cordee:installed_bytes", "value": str(package.bytes)}]
    return component
