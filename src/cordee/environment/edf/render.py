"""An environment as an EDF that inherits nothing and refers to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cordee.environment.document import Environment
from cordee.environment.edf.mounts import mount_text
from cordee.spec.toml_text import quoted

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def edf_text(environment: Environment) -> str:
    """Return the text of an EDF that resolves to this environment, wherever it is resolved."""
    return "\n".join(_lines(environment)) + "\n"


def _lines(environment: Environment) -> Iterator[str]:
    yield f"image = {_text(environment.image)}"
    if environment.workdir is not None:
        yield f"workdir = {_text(environment.workdir)}"
    yield f"entrypoint = {str(environment.entrypoint).lower()}"
    yield f"writable = {str(environment.writable).lower()}"
    yield from _list("mounts", [quoted(mount_text(mount)) for mount in environment.mounts])
    yield from _list("devices", [_text(device) for device in environment.devices])
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
        yield from (
            f"{name if _BARE_KEY.match(name) else quoted(name)} = {_text(value)}" for name, value in values.items()
        )


def _text(value: str) -> str:
    return quoted(value.replace("$", "$$"))
