"""Reads from the code what it writes: the fields of classes and of documents, and the events of the journal."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ForwardRef

_PACKAGE = Path(__file__).parents[3]
_ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")
_OWN = re.compile(r"cordee/[a-z_]+$")
_TELLERS = ("facts", "describe", "_look")
_HOUSEKEEPING = {"durable", "mark", "waits"}


def class_fields(of: type) -> dict[str, tuple[str, str]]:
    """Return (type, meaning) of each field of a dataclass, named tuple or pydantic model, meanings from its docstring."""
    said = docstring_fields(of)
    if dataclasses.is_dataclass(of):
        kinds = {field.name: str(field.type) for field in dataclasses.fields(of)}
    else:
        kinds = {name: _kind(kind) for name, kind in of.__annotations__.items()}
    return {name: (kind, said.get(name, "")) for name, kind in kinds.items()}


def docstring_fields(of: Any) -> dict[str, str]:
    """Return what the docstring's `Attributes:` says, by name; one line may speak of several names."""
    found: dict[str, str] = {}
    current: list[str] = []
    inside = False
    for line in inspect.cleandoc(of.__doc__ or "").splitlines():
        if not line.startswith(" "):
            inside = line == "Attributes:" if line else inside
            current = []
        elif inside:
            match = _ATTRIBUTE.match(line)
            if match:
                current = [name.strip() for name in match[1].split(",")]
                found.update(dict.fromkeys(current, match[2]))
            else:
                found.update({name: f"{found[name]} {line.strip()}" for name in current})
    return found


def document_keys(function: Callable[..., Any]) -> list[str]:
    """Return the keys of the dict that a function returns, in the order of its text; `nodes[].node` is inside a list."""
    return _document_keys(ast.parse(textwrap.dedent(inspect.getsource(function))))


@lru_cache(maxsize=1)
def sampler_facts() -> dict[str, list[str]]:
    """Return the facts that samplers tell of their devices, by the group of the devices."""
    found: dict[str, list[str]] = {"gpu": [], "node": [], "rank": []}
    for path in sorted((_PACKAGE / "telemetry" / "node" / "samplers").rglob("*.py")):
        for holder in ast.walk(ast.parse(path.read_text())):
            if not isinstance(holder, ast.ClassDef):
                continue
            for function in holder.body:
                if isinstance(function, ast.FunctionDef) and function.name in _TELLERS:
                    of_ranks = "Rank" in holder.name or "rank" in [argument.arg for argument in function.args.args]
                    group = "gpu" if path.parent.name == "gpu" else "rank" if of_ranks else "node"
                    found[group] += [key for key in _document_keys(function) if key not in found[group]]
    return found


def _document_keys(tree: ast.AST) -> list[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        value = node.value if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign)) else None
        value = value.body if isinstance(value, ast.IfExp) else value
        value = value.value if isinstance(value, ast.DictComp) else value  # one such document for each device
        if isinstance(value, ast.Dict):
            found.update(dict.fromkeys(_keys(value, "")))
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Subscript) and ast.unparse(target.value).partition("[")[0] in names:
                found.update(dict.fromkeys(_texts(target.slice)))
    return list(found)


@lru_cache(maxsize=1)
def journal_events() -> dict[str, list[str]]:
    """Return the fields of every event that any module writes into the journal, beside those that each line has."""
    found: dict[str, dict[str, None]] = {}
    for tree in _trees("journal"):
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _appends(call.func):
                for event in (text for argument in call.args[:1] for text in _texts(argument)):
                    fields = found.setdefault(event, {})
                    fields.update(dict.fromkeys(word.arg for word in call.keywords if word.arg))
    return {event: [name for name in fields if name not in _HOUSEKEEPING] for event, fields in sorted(found.items())}


@lru_cache(maxsize=1)
def own_events() -> list[str]:
    """Return the names of the user events that Cordée itself logs."""
    return sorted({text for tree in _trees('"cordee/') for text in _strings(tree) if _OWN.match(text)})


def _appends(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "append" and "journal" in ast.unparse(function.value)
    return isinstance(function, ast.Name) and function.id == "journalled"


def _trees(holding: str) -> Iterator[ast.Module]:
    """Yield the modules of the package that hold a text."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text()
        if holding in text:
            yield ast.parse(text)


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _texts(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _keys(node: ast.Dict, above: str) -> Iterator[str]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(value, ast.Dict) and key is not None and not _texts(key):
            yield from _keys(value, above)  # by device
        for name in _texts(key) if key is not None else []:
            yield above + name
            if isinstance(value, ast.Dict):
                yield from _keys(value, f"{above}{name}.")
            elif isinstance(value, (ast.ListComp, ast.List)):
                inner = value.elt if isinstance(value, ast.ListComp) else value.elts[0] if value.elts else None
                if isinstance(inner, ast.Dict):
                    yield from _keys(inner, f"{above}{name}[].")


def _kind(kind: Any) -> str:
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
