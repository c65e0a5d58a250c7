"""Turns what pydantic says into findings with file, line, what was given, what is allowed and what to do."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from cordee.findings import Finding

Place = Callable[[tuple[str | int, ...]], tuple[str | None, int | None]]


def findings_of(error: ValidationError, model: type[BaseModel], place: Place) -> list[Finding]:
    """Return one finding for each fault.

    Args:
        error: what pydantic raised.
        model: the model that was validated.
        place: returns (file, line) of a path of keys.
    """
    found = []
    seen = set()
    for fault in error.errors(include_url=False):
        path = _document_path(fault["loc"])
        if (path, fault["type"]) in seen:
            continue
        seen.add((path, fault["type"]))
        file, line = place(path)
        key = ".".join(str(part) for part in path)
        if fault["type"] == "extra_forbidden":
            found.append(unknown_key(path, model_at(model, path[:-1]), file, line))
        elif fault["type"] == "missing":
            found.append(
                Finding(
                    f"{key} is missing", rule="missing-key", file=file, line=line, allowed=_required_form(key), next=f"add `{key} = ...`"
                )
            )
        else:
            message = fault["msg"].removeprefix("Value error, ")
            found.append(
                Finding(
                    f"{key}: {message[:1].lower() + message[1:]}" if key else message,
                    rule="bad-value",
                    file=file,
                    line=line,
                    given=_given(fault.get("input")),
                    allowed=_allowed(fault),
                    next=f"change {key}" if key else None,
                )
            )
    return found


def unknown_key(
    path: tuple[str | int, ...], model: type[BaseModel] | None, file: str | None, line: int | None
) -> Finding:
    """Return the finding for a key that a table does not have, with the nearest valid name."""
    key = str(path[-1])
    allowed = key_names(model) if model else []
    near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)
    table = ".".join(str(part) for part in path[:-1])
    where = f"[{table}]" if table else "the top level"
    hint = f"did you mean {near[0]!r}?" if near else f"remove {key!r}"
    return Finding(
        f"unknown key {key!r} in {where}", rule="unknown-key", file=file, line=line, given=key, allowed=allowed, next=hint
    )


def key_names(model: type[BaseModel]) -> list[str]:
    """Return the keys that a table of this model may have."""
    return [field.alias or name for name, field in model.model_fields.items()]


def model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Return the model of the table at `path`, None when it is a free one."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            if part not in fields:
                return None
            current = _inner(fields[str(part)].annotation)
        elif typing.get_origin(current) is dict:
            current = _inner(typing.get_args(current)[1])
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _inner(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            if option is not type(None):
                return _inner(option)
    if typing.get_origin(annotation) is typing.Annotated:
        return _inner(typing.get_args(annotation)[0])
    return annotation


def _document_path(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Leave out what pydantic adds for unions and validators: parts that are no keys."""
    return tuple(
        part
        for part in location
        if not (isinstance(part, str) and ("[" in part or part in ("int", "str", "constrained-int", "constrained-str")))
    )


def _given(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _required_form(key: str) -> str:
    return {"name": 'a name such as "char-gpt"', "run": 'a command such as "python train.py"'}.get(key, "a value")


def _allowed(fault: Any) -> str:
    context = fault.get("ctx", {})
    kind = fault["type"]
    if "expected" in context:
        return str(context["expected"])
    if "pattern" in context:
        return "letters, digits and . _ - (at most 64, beginning with a letter or digit)"
    if kind.startswith("greater_than"):
        return f"at least {context.get('ge', context.get('gt'))}"
    if kind.startswith("less_than"):
        return f"at most {context.get('le', context.get('lt'))}"
    names = {"int_type": "a whole number", "string_type": "a text in quotes", "bool_type": "true or false"}
    names |= {"dict_type": "a table", "model_type": "a table", "float_type": "a number", "tuple_type": "a list"}
    return names.get(kind, fault["msg"].removeprefix("Value error, "))
