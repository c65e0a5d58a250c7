"""Texts of a blueprint with names in braces, and the document that a service is started from."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import string
from pathlib import Path
from typing import Any, Iterator, Mapping

# In the run's folder: a file of the state of each service, and what its clients need, which only its owner reads.
FOLDER = "services"
STATE_SCHEMA = 1
# How what a service waits for begins while its image comes.
PULLING = "its image is pulled:"
_TEMP = re.compile(r"/tmp/cordee-[a-z0-9_]{8}\Z")


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


def hosts_of(systems: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the hosts of a job's services are started from, by the services' names, of `systems` in a plan's step."""
    hosts: dict[str, dict[str, Any]] = systems.get("services", {}).get("hosts", {})
    return hosts


def state_path(run: Path, service: str) -> Path:
    """Return the file that says how a service of a run is."""
    return run / FOLDER / f"{service}.json"


def client_path(run: Path, service: str) -> Path:
    """Return the file that sets what clients of a service need, as a shell reads it."""
    return run / FOLDER / f"{service}.env"


def drain_path(run: Path, service: str) -> Path:
    """Return the file whose writing has a service end once nobody is connected; it holds after how many seconds at the latest."""
    return run / FOLDER / f"{service}.drain"


def log_path(run: Path, service: str) -> Path:
    """Return the file of what a service of a job prints."""
    return run / FOLDER / f"{service}.log"


def read_client(path: Path) -> dict[str, str]:
    """Return the variables that such a file sets; empty where there is none."""
    try:
        words = shlex.split(path.read_text())
    except (OSError, ValueError):
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def shell_lines(variables: Mapping[str, str]) -> str:
    """Return lines by which a shell sets variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def read_state(path: Path) -> dict[str, Any]:
    """Return the document that a file of a service holds; empty where there is none, or none that can be read."""
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def remove_temp(state: Mapping[str, Any]) -> None:
    """Remove the temporary folder of a program whose host was killed, by what its state says, on the machine where it ran."""
    if state.get("host") == socket.gethostname() and _TEMP.match(state.get("temp") or ""):
        shutil.rmtree(state["temp"], ignore_errors=True)
