"""Field types of documents: sizes, durations, commands, and the strict base of all models."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from cordee.units import parse_duration, parse_size

_REQUIREMENT = re.compile(r"^\s*(memory|capability|model|count)\s*(>=|<=|==|=|>|<)\s*(.+?)\s*$")


class Document(BaseModel):
    """Base of all models of documents: frozen, unknown keys refused, no silent conversion of text to numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


def _size(value: Any) -> int:
    if not isinstance(value, (str, int, float)):
        raise ValueError('expected a number of bytes or a size such as "64GB" or "8GiB"')
    return parse_size(value)


def _duration(value: Any) -> float:
    if not isinstance(value, (str, int, float)):
        raise ValueError('expected seconds or a duration such as "90s", "30min", "72h"')
    return parse_duration(value)


def _argv(value: Any) -> tuple[str, ...]:
    """Split a string as a shell would (no shell runs) and keep a list as it is."""
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"cannot be split into words: {error}") from None
    elif isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        words = list(value)
    else:
        raise ValueError("expected a string or a list of strings")
    if not words or not words[0]:
        raise ValueError("the command is empty")
    if any("\0" in word for word in words):
        raise ValueError("a command cannot hold a NUL character")
    return tuple(words)


def _lines(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return tuple(value)
    raise ValueError("expected a string or a list of strings")


def _gpu(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected a requirement such as "memory >= 24GB, capability >= 8.0"')
    for part in value.split(","):
        match = _REQUIREMENT.match(part)
        if match is None:
            raise ValueError('expected requirements such as "memory >= 24GB, capability >= 8.0", separated by commas')
        if match.group(1) == "memory":
            parse_size(match.group(3))
    return value


Size = Annotated[int, BeforeValidator(_size)]
Duration = Annotated[float, BeforeValidator(_duration)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv)]
Lines = Annotated[tuple[str, ...], BeforeValidator(_lines)]
GpuRequirement = Annotated[str, BeforeValidator(_gpu)]
