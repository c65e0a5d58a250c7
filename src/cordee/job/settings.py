"""In what the settings of runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cordee.core.secrets import masked_document
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder

_SECRET = ("env",)  # values of variables may be secrets
_LEFT_OUT = ("name",)
_LONGEST = 500


def differences(folders: Mapping[str, RunFolder]) -> dict[str, dict[str, Any]]:
    """Return the settings that are not the same in all runs: by key, the value of each run, null where it has none."""
    known = {run: _settings(folder) for run, folder in folders.items()}
    keys = sorted({key for settings in known.values() for key in settings})
    rows = {key: {run: settings.get(key) for run, settings in known.items()} for key in keys}
    return {key: row for key, row in rows.items() if len({json.dumps(value) for value in row.values()}) > 1}


def _settings(folder: RunFolder) -> dict[str, Any]:
    """Return what the run was submitted with, by dotted key; of variables only the names."""
    try:
        document = read_json(folder.provenance, folder.root)
        found = {str(key): entry["value"] for key, entry in document.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    for key in list(found):
        head = key.partition(".")[0]
        if head in _LEFT_OUT:
            del found[key]
        elif head in _SECRET:
            value = found.pop(key)
            for name in value if isinstance(value, dict) else [key.partition(".")[2]]:
                found[f"env.{name}"] = "set"
    return {key: _short(masked_document(value)) for key, value in found.items()}


def _short(value: Any) -> Any:
    text = json.dumps(value, default=str)
    return value if len(text) <= _LONGEST else text[:_LONGEST] + "..."
