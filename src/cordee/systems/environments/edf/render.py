"""An environment as an EDF that inherits nothing and refers to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cordee.core.documents.toml_text import quoted
from cordee.systems.environments.edf.mounts import mount_text
from cordee.systems.environments.node.document import Environment

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def edf_text(environment: Environment, additions: Mapping[str, Any] | None = None) -> str:
    """Return the text of an EDF that resolves to this environment, wherever it is resolved.

    Args:
        environment: what it says.
        additions: tables of Cordée's own, which are carried as they are.
    """
    return "\n".join(_lines(environment, additions or {})) + "\n"


def _lines(environment: Environment, additions: Mapping[str, Any]) -> Iterator[str]:
    yield f"image = {_text(environment.image)}"
    if environment.workdir is not None:
        yield f"workdir = {_text(environment.workdir)}"
    yield f"entrypoint = {str(environment.entrypoint).lower()}"
    yield f"writable = {str(environment.writable).lower()}"
    yield from _list("mounts", [quoted(mount_text(mount)) for mount in environment.mounts])
    yield from _list("devices", [_text(device) for device in environment.devices])
    yield from (f"{key} = {_raw(value)}" for key, value in additions.items())
    yield from _table("env", environment.env)
    yield from _table("annotations", environment.annotations)


def _list(key: str, values: list[str]) -> Iterator[str]:
    if values:
        yield f"{key} = ["
        yield from (f"    {value}," for value in values)
        yield "]"


def _table(key: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield ""
        yield f"[{key}]"
        yield from (f"{_key(name)} = {_text(value)}" for name, value in values.items())


def _raw(value: Any) -> str:
    """Return any value that TOML can hold, on one line."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_raw(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_raw, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str) -> str:
    return name if _BARE_KEY.match(name) else quoted(name)


def _text(value: str) -> str:
    return quoted(value.replace("$", "$$"))
