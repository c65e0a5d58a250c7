"""The catalogue of rules as a protocol holds it, kept in the cache: reading it takes longer than a quick vetting."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cordee import __version__
from cordee.core.documents.config_paths import cache_folder
from cordee.core.errors import RunFolderError
from cordee.runs.folder import write_atomically
from cordee.systems.vetting.rules import load_rules, rule_files

_MOST_KEPT = 8


def rules_of(paths: Sequence[Path], environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """Return the rules as `cordee.systems.vetting.rules.load_rules` does; read anew whenever a file of them has changed.

    Raises:
        DocumentError: a file cannot be read, or is wrong.
    """
    digest = hashlib.sha256(__version__.encode())
    try:
        for path in rule_files(paths):
            digest.update(f"\0{path}\0".encode() + path.read_bytes())
    except OSError:
        return load_rules(paths)
    kept = cache_folder(environ) / "rules" / f"{digest.hexdigest()}.json"
    try:
        found: list[dict[str, Any]] = json.loads(kept.read_text())
    except (OSError, ValueError):
        found = load_rules(paths)
        _keep(kept, found)
    return found


def _keep(path: Path, rules: list[dict[str, Any]]) -> None:
    """Write them for the next time, where that is possible, and forget the oldest."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(rules))
        for old in sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-_MOST_KEPT]:
            old.unlink()
    except (OSError, RunFolderError):
        pass
