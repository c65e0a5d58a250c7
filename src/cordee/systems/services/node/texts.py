"""Texts of a blueprint with names in braces, and the document that a service is started from."""

from __future__ import annotations

import json
import shlex
import string
from pathlib import Path
from typing import Any, Iterator, Mapping

# In the run's folder: a file of the state of each service, and what its clients need, which only its owner reads.
FOLDER = "services"
STATE_SCHEMA = 1


def references(text: str) -> Iterator[tuple[str, str]]:
    """Yield what stands in braces: (kind, name), the name empty for `{host}`.

    Raises:
        ValueError: braces do not match.
    """
    for _, field, _, _ in string.Formatter().parse(text):
        if field is not None:
            kind, _, name = field.partition(".")
            yield kind, name


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with what stands in braces replaced; `{{` is a brace.

    Raises:
        KeyError: nothing of that name is known.
    """
    parts = []
    for literal, field, _, _ in string.Formatter().parse(text):
        parts.append(literal)
        if field is not None:
            parts.append(known[field])
    return "".join(parts)


def state_path(run: Path, service: str) -> Path:
    """Return the file that says how a service of a run is."""
    return run / FOLDER / f"{service}.json"


def client_path(run: Path, service: str) -> Path:
    """Return the file that sets what clients of a service need, as a shell reads it."""
    return run / FOLDER / f"{service}.env"


def shell_lines(variables: Mapping[str, str]) -> str:
    """Return lines by which a shell sets variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def read_state(path: Path) -> dict[str, Any]:
    """Return what a service's file says; empty where there is none, or none that can be read."""
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
