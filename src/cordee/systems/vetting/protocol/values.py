"""Turns what a protocol gives for a parameter into what the check gets: bytes, seconds, bytes per second."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from cordee.core.units import BANDWIDTH_FORMS, DURATION_FORMS, SIZE_FORMS, parse_bandwidth, parse_duration, parse_size
from cordee.systems.vetting.node.checks import Parameter

FORMS = {
    "number": "a number",
    "count": "a whole number from 0",
    "ratio": "a number from 0 to 1",
    "boolean": "true or false",
    "text": "a text (in quotes where YAML would read something else)",
    "texts": "a text, or a list of them",
    "map": "a table of texts; null where any text will do",
    "size": SIZE_FORMS,
    "bandwidth": BANDWIDTH_FORMS,
    "duration": DURATION_FORMS,
    "any": "any value that JSON has too",
    "list": "a list",
    "table": "a table",
}
_KINDS = {
    "number": "a number",
    "count": "a whole number from 0",
    "ratio": "a number from 0 to 1",
    "boolean": "true or false",
    "texts": "a text or a list of texts",
    "map": "a table of texts",
    "any": "a value that JSON has too",
}
TEXT_KINDS = ("text", "texts", "map")
_SCHEMA_TEXTS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_NUMBER_OR_TEXT: dict[str, Any] = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
_PLAIN_TEXT: dict[str, Any] = {"type": ["string", "number", "boolean"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "count": {"type": "integer", "minimum": 0},
    "ratio": {"type": "number", "minimum": 0, "maximum": 1},
    "boolean": {"type": "boolean"},
    "text": _PLAIN_TEXT,
    "texts": _SCHEMA_TEXTS,
    "map": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    "size": _NUMBER_OR_TEXT,
    "bandwidth": _NUMBER_OR_TEXT,
    "duration": _NUMBER_OR_TEXT,
    "any": {},
    "list": {"type": "array"},
    "table": {"type": "object"},
}

Converter = Callable[[Any], Any]


class WrongValue(ValueError):
    """A value is not what its parameter takes; says what would be."""

    def __init__(self, text: str, allowed: str) -> None:
        super().__init__(text)
        self.text, self.allowed = text, allowed


def convert(parameter: Parameter, value: Any, converters: Mapping[str, Converter] | None = None) -> Any:
    """Return a value as the check gets it.

    Args:
        parameter: what is wanted.
        value: as YAML gives it.
        converters: other readings of some kinds.

    Raises:
        WrongValue: it is something else.
    """
    converter = (converters or {}).get(parameter.kind) or _CONVERTERS[parameter.kind]
    try:
        converted = converter(value)
    except WrongValue:
        raise
    except (ValueError, TypeError, OverflowError):
        raise WrongValue(f"is not {_article(parameter.kind)}", FORMS[parameter.kind]) from None
    if parameter.choices and converted not in parameter.choices:
        raise WrongValue("is not one of its values", ", ".join(parameter.choices))
    return converted


def _article(kind: str) -> str:
    return _KINDS.get(kind) or f"a {kind}"


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError
    return value


def _ratio(value: Any) -> float:
    number = float(_number(value))
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError
    return [_text(entry) for entry in values]


def _map(value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise ValueError
    return {key: None if entry is None else _text(entry) for key, entry in value.items()}


def _any(value: Any) -> Any:
    json.dumps(value, allow_nan=False)
    return value


def _measured(parse: Callable[[Any], float | int]) -> Converter:
    def converter(value: Any) -> float | int:
        if not isinstance(value, str):
            _number(value)
        parsed = parse(value)
        if not 0 <= parsed < 1e21:
            raise ValueError
        return parsed

    return converter


_CONVERTERS: dict[str, Converter] = {
    "number": _number,
    "count": _count,
    "ratio": _ratio,
    "boolean": _boolean,
    "text": _text,
    "texts": _texts,
    "map": _map,
    "size": _measured(parse_size),
    "bandwidth": _measured(parse_bandwidth),
    "duration": _measured(parse_duration),
    "any": _any,
    "list": lambda value: value,
    "table": lambda value: value,
}
