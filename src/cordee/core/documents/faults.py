"""Turns what pydantic says into findings with file, line, what was given, what is allowed and what to do."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.secrets import MASK, masked_text
from cordee.core.words import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")

_MOST_SHOWN = 200
_REQUIRED = {"name": 'a name such as "char-gpt"', "run": 'a command such as "python train.py"'}
_KINDS = {
    "int_type": "a whole number, without quotes",
    "int_from_float": "a whole number",
    "string_type": "a text in quotes",
    "string_sub_type": "a text in quotes",
    "bool_type": "true or false",
    "float_type": "a number, without quotes",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}


@dataclass(frozen=True)
class ValuePlace:
    """Where a value was given: a file and line, or `source` for a flag or variable; `prefix` as in `[on.local]`."""

    file: str | None = None
    line: int | None = None
    prefix: tuple[str, ...] = ()
    source: str = ""


def validated(kind: type[M], values: Any, place: Callable[[Keys], ValuePlace]) -> M:
    """Return what a document holds as its model.

    Args:
        kind: the model.
        values: as TOML or YAML gives them.
        place: returns where a path of keys was given.

    Raises:
        DocumentError: it is none; every fault is a finding.
    """
    from pydantic import ValidationError

    if not isinstance(values, Mapping):
        at = place(())
        raise fault_error("it is not a table", "bad-value", file=at.file, line=at.line, allowed="`key = value` lines")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise document_error(findings_of(error, kind, values, place)) from None


def findings_of(
    error: ValidationError, model: type[BaseModel], values: Mapping[str, Any], place: Callable[[Keys], ValuePlace]
) -> list[Finding]:
    """Return one finding for each fault, unknown keys first: one of them may be what is missing, misspelt.

    Args:
        error: what pydantic raised.
        model: the model that was validated.
        values: what was validated.
        place: returns where a path of keys was given.
    """
    found: dict[Keys, Finding] = {}
    for fault in error.errors(include_url=False):
        path = _document_path(fault["loc"], values, fault["type"] == "missing")
        if path not in found:
            found[path] = _finding(fault, path, model, place(path))
    return sorted(found.values(), key=lambda finding: finding.rule != "unknown-key")


def document_error(findings: list[Finding]) -> DocumentError:
    """Return the error that stands for these findings, with the first one in words."""
    first = findings[0]
    count = len(findings) - 1
    more = f" (and {count} more fault{'s' if count > 1 else ''})" if count else ""
    return DocumentError(
        first.text + more,
        findings=findings,
        file=first.file,
        line=first.line,
        given=first.given,
        allowed=first.allowed,
        next=first.next,
    )


def fault_error(text: str, rule: str, **details: Any) -> DocumentError:
    """Return the error of a document with one fault, which is its only finding."""
    return document_error([Finding(text, "error", rule, **details)])


def unknown_key(path: Keys, model: type[BaseModel] | None, place: ValuePlace) -> Finding:
    """Return the finding for a key that a table does not have, with the nearest valid name, or what the model says `instead`."""
    key = str(path[-1])
    allowed = key_names(model) if model else []
    table = dotted(place.prefix + path[:-1])
    where = f"[{table}]" if table else "the document"
    instead = getattr(model, "instead", {}).get(key)
    hint = instead or did_you_mean(key, allowed, f"remove {key}")
    text = (f"{key} is no key of {where}" if instead else f"{where} has no key {key}") + (
        f" (from {place.source})" if place.source else ""
    )
    return Finding(
        text, "error", "unknown-key", file=place.file, line=place.line, given=key, allowed=allowed, next=hint
    )


def key_names(model: type[BaseModel]) -> list[str]:
    """Return the keys that a table of this model may have."""
    return [*(field.alias or name for name, field in model.model_fields.items()), *getattr(model, "beside", ())]


def model_at(model: type[BaseModel], path: Keys) -> type[BaseModel] | None:
    """Return the model of the table at `path`, None when it is a free one or no table."""
    from pydantic import BaseModel

    kind = annotation_at(model, path)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def annotation_at(model: type[BaseModel], path: Keys) -> Any:
    """Return the type of the value at `path` without what annotates it, None when there is no such key."""
    from pydantic import BaseModel

    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            if part not in fields:
                return None
            current = _inner(fields[str(part)].annotation)
        elif typing.get_origin(current) is dict:
            current = _inner(typing.get_args(current)[1])
        elif typing.get_origin(current) is tuple and isinstance(part, int):
            current = _inner(typing.get_args(current)[0])
        else:
            return None
    return current


def _inner(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            if option is not type(None):
                return _inner(option)
    if typing.get_origin(annotation) is typing.Annotated:
        return _inner(typing.get_args(annotation)[0])
    return annotation


def _finding(fault: Any, path: Keys, model: type[BaseModel], place: ValuePlace) -> Finding:
    key = dotted(place.prefix + path)
    if fault["type"] == "extra_forbidden":
        return unknown_key(path, model_at(model, path[:-1]), place)
    if fault["type"] == "missing":
        allowed = _REQUIRED.get(key, "a value")
        text = f"{key} is missing"
        hint = f"add `{path[-1]} = ...`"
        return Finding(text, "error", "missing-key", file=place.file, line=place.line, allowed=allowed, next=hint)
    text = f"{key} {_complaint(fault)}" + (f" (from {place.source})" if place.source else "")
    return Finding(
        text,
        "error",
        "bad-value",
        file=place.file,
        line=place.line,
        given=MASK if path[:1] == ("env",) else shown(fault.get("input")),
        allowed=_allowed(fault),
        next=f"change {key}" if not place.source else f"change {place.source}",
    )


def _document_path(location: tuple[str | int, ...], values: Any, missing: bool) -> Keys:
    """Return the keys of a fault's location; pydantic's own marks for unions and validators are no keys."""
    path: list[str | int] = []
    current: Any = values
    for index, part in enumerate(location):
        inside = part in current if isinstance(current, dict) else _is_index(current, part)
        if inside:
            current = current[part]
        elif not (missing and index == len(location) - 1):
            continue
        path.append(part)
    return tuple(path)


def _is_index(values: Any, part: str | int) -> bool:
    return isinstance(values, (list, tuple)) and isinstance(part, int) and part < len(values)


def dotted(path: Keys) -> str:
    """Return a path of keys as people write it: `mounts[0]`, `env.PATH`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: Any) -> bool | int | float | str | None:
    """Return a value that was given as a finding shows it: a number as it is, all else as a text that is not too long, lists as documents have them."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = masked_text(value if isinstance(value, str) else _as_written(value))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _as_written(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # YAML has keys that are no texts, and lists that hold themselves
        return repr(value)


def _complaint(fault: Any) -> str:
    kind = fault["type"]
    if kind == "wrong_value":
        text = str(fault["ctx"]["text"])
        return text if text.startswith(("is ", "holds ", "cannot ", "does ")) else f"is wrong: {text}"
    if kind in _KINDS:
        return f"is not {_KINDS[kind].partition(',')[0]}"
    if kind.startswith("greater_than"):
        return "is too small"
    if kind.startswith("less_than"):
        return "is too large"
    if kind == "literal_error":
        return "is not one of its values"
    message = str(fault["msg"])
    return f"is wrong: {message[:1].lower()}{message[1:]}"


def _allowed(fault: Any) -> str:
    context, kind = fault.get("ctx", {}), fault["type"]
    if kind == "wrong_value":
        return str(context["allowed"])
    if kind.startswith("greater_than"):
        return f"at least {context['ge']}" if "ge" in context else f"more than {context['gt']}"
    if kind.startswith("less_than"):
        return f"at most {context['le']}" if "le" in context else f"less than {context['lt']}"
    if kind == "literal_error":
        return str(context["expected"]).replace("'", '"')
    return _KINDS.get(kind, str(fault["msg"]))
