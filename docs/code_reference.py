"""Renders what the code says of itself: the keys of documents with one sentence each, and every public class by room."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

import cordee
from cordee.core.documents.faults import model_at
from cordee.core.units import format_duration, format_size
from cordee.job.document import Job
from cordee.job.profile import ClusterProfile
from cordee.systems.services.blueprint import Blueprint

DOCUMENTS: dict[str, type[BaseModel]] = {
    "The job document": Job,
    "The cluster profile": ClusterProfile,
    "The service blueprint": Blueprint,
}
PACKAGE = Path(cordee.__file__).parent


class DocumentKey(NamedTuple):
    """A key of a table: what it means (empty where nobody said it), what it takes, and what holds without it."""

    name: str
    meaning: str
    takes: str
    default: str


class PublicClass(NamedTuple):
    """A public class: its file in the package, and the first sentence of its docstring."""

    name: str
    file: str
    says: str


def tables_of(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (`need`, its model) of a document's table and of those below it; `NAME` stands for a name that people choose."""
    yield ".".join(path), model
    for name, field in model.model_fields.items():
        key = field.alias or name
        for below, written in (((key,), (key,)), ((key, "NAME"), (key, "NAME")), ((key, 0), (key,))):
            inner = model_at(model, below)
            if inner is not None and inner is not model:
                yield from tables_of(inner, (*path, *written))
                break


def keys_of(model: type[BaseModel]) -> list[DocumentKey]:
    """Return the keys of a table that hold values."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    meanings, kinds = {}, {}
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            kinds[statement.target.id] = statement.annotation
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                meanings[statement.target.id] = str(following.value.value)
    return [
        DocumentKey(
            field.alias or name, meanings.get(name, ""), _takes(kinds[name]), _default(field, ast.unparse(kinds[name]))
        )
        for name, field in model.model_fields.items()
    ]


_KINDS = {
    "str": "text",
    "bool": "true or false",
    "int": "whole number",
    "float": "number",
    "Count": "whole number from 1",
    "CountOrZero": "whole number from 0",
    "Size": "size",
    "Duration": "duration",
    "Argv": "command: a text, or a list of words",
    "Template": "command with `{node}` in it",
    "Ticket": "command",
    "Lines": "text, or list of texts",
    "Modules": "name of a module, or list of them",
    "Name": "name",
    "GpuRequirement": "requirements",
    "SignalName": "name of a signal",
    "MpiType": "name",
    "VariableText": "text",
    "Adapter": "name of a library",
    "Scheduler": "name of a back end",
    "Requeue": '"requeue", "resubmit", "forbidden"',
}


def _takes(kind: ast.expr) -> str:
    """Return a type in words."""
    if isinstance(kind, ast.BinOp):
        sides = [_takes(side) for side in (kind.left, kind.right) if not _is_none(side)]
        return " or ".join(dict.fromkeys(sides))
    if isinstance(kind, ast.Subscript):
        name, inner = ast.unparse(kind.value), kind.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Literal":
            return ", ".join(f'"{ast.literal_eval(part)}"' for part in parts)
        if name == "Annotated":
            return _takes(parts[0])
        if name == "tuple":
            return f"list: {_takes(parts[0])}"
        return f"table: {_takes(parts[1])} by name"
    name = ast.unparse(kind)
    return _KINDS.get(name, "value" if name == "Any" else "table")


def _is_none(kind: ast.expr) -> bool:
    return isinstance(kind, ast.Constant) and kind.value is None


def _default(field: Any, kind: str) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    if "Duration" in kind and not isinstance(value, str):
        return format_duration(value)
    if kind == "Size":
        return format_size(value)
    return f"`{str(value).lower() if isinstance(value, bool) else ', '.join(value) if isinstance(value, tuple) else value}`"


def document_keys() -> str:
    """Return the page of all keys of documents."""
    parts = [_KEYS]
    for title, model in DOCUMENTS.items():
        parts.append(f"## {title}\n")
        first: dict[type[BaseModel], str] = {}
        for path, table in tables_of(model):
            if table in first:
                parts.append(f"### {_title(path)}\n\nThe keys of {_title(first[table])}.\n")
                continue
            first[table] = path
            keys = [key for key in keys_of(table) if key.takes != "table" and not key.takes.startswith("table: table")]
            if keys:
                parts += [f"### {_title(path)}\n", *_rows(keys), ""]
    return "\n".join(parts)


def _title(path: str) -> str:
    return f"`[{path}]`" if path else "At the top"


def _rows(keys: list[DocumentKey]) -> list[str]:
    rows = [f"| `{key.name}` | {key.meaning} | {key.takes} | {key.default} |" for key in keys]
    return ["| key | means | takes | default |", "|---|---|---|---|", *rows]


_KEYS = """# Keys of documents

Every key of `cordee.toml` and of a cluster's profile, rendered from the code that reads them. Sizes are bytes or texts such as
`"64GB"` and `"8GiB"`, durations seconds or texts such as `"90s"` and `"1d12h"`; `NAME` is a name of your own. [The job
document](job-document.md) and [Clusters](clusters.md) show them in use. Keys of EDFs are in [Environments](environments.md#the-format),
those of protocols in [Checks](vetting-checks.md).
"""


@cache
def public_classes() -> list[PublicClass]:
    """Return every class at the top of a module whose name and modules do not begin with an underscore, by file."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.append(PublicClass(node.name, str(file), first_sentence(ast.get_docstring(node) or "")))
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]


def classes() -> str:
    """Return the page of all public classes, by room, system and face."""
    rooms: dict[str, list[PublicClass]] = {}
    for one in public_classes():
        words = Path(one.file).parts
        room = "/".join(words[: 2 if words[0] in ("systems", "faces") else 1]) if len(words) > 1 else "cordee"
        rooms.setdefault(room, []).append(one)
    parts = [_CLASSES]
    for room, found in rooms.items():
        rows = [f"| `{one.name}` | {one.says.replace('|', chr(92) + '|')} | `{one.file}` |" for one in sorted(found)]
        parts += [f"## {room}\n", "| class | is | in |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


_CLASSES = """# Classes by room

Every public class with the first sentence of its docstring, rendered from the code. The rooms are those of [Architecture](architecture.md); concepts are
explained in the [glossary](glossary.md).
"""
