"""Says which of some required packages this interpreter lacks."""

from __future__ import annotations

import os
import re
from importlib import metadata
from typing import Any, Optional

from cordee.machine.probes.common import Say, serve

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")


def main() -> None:
    """Answer one request: `requirements`, a list of texts as pip takes them, or lists of them with options."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{"lacking": [...]}`: what is not installed, or not in the version that is asked for, or cannot be told."""
    return {"lacking": [text for text in map(first_word, request["requirements"]) if not is_installed(text)]}


def first_word(requirement: Any) -> str:
    """Return the requirement itself of one entry, without pip's options."""
    return str(requirement[0] if isinstance(requirement, list) else requirement).strip()


def is_installed(requirement: str) -> bool:
    """Return whether a distribution of this name and version is there."""
    base = requirement.partition("@")[0].partition(";")[0].strip()
    if base.endswith(".whl"):
        base = "==".join(os.path.basename(base).split("-")[:2])
    match = _NAME.match(base)
    if match is None:
        return False
    try:
        version = metadata.version(match[0])
    except metadata.PackageNotFoundError:
        return False
    versions = re.sub(r"\[.*?\]", "", base[match.end() :]).strip()
    return not versions or _fits(version, versions)


def _fits(version: str, wanted: str) -> bool:
    specifiers = _specifiers()
    if specifiers is None:
        return wanted == f"=={version}"
    try:
        return bool(specifiers.SpecifierSet(wanted).contains(version, prereleases=True))
    except ValueError:
        return False


def _specifiers() -> Optional[Any]:
    import importlib

    for name in ("packaging.specifiers", "pip._vendor.packaging.specifiers"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
