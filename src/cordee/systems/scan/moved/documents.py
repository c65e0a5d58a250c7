"""Keys are taken out of job documents and notebooks: a document's `setup` reads the file, a cell of a notebook opens it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.toml_lines import locate
from cordee.core.documents.toml_text import quoted, value_text
from cordee.core.passwords import keys_and_passwords_in
from cordee.core.secret_forms import Key
from cordee.systems.scan.moved.scripts import in_shell, literal_of

_SETUP = re.compile(r"[ \t]*setup[ \t]*=[ \t]*\[")
_MAGIC = re.compile(r"(?m)^([ \t]*)[%!]")
_ENV_MAGIC = re.compile(r"(?P<space>[ \t]*)%env[ \t]+(?P<name>\w+)[ \t=][ \t]*(?P<value>\S+)[ \t]*")


def in_job_document(text: str, key: Key, place: Path) -> str | None:
    """Return a job document whose `setup` sets a variable of `[env]` from a file, in place of the key; None where the key is no such value.

    Args:
        text: of the document.
        key: in it.
        place: the file with the key.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    env, setup, value = document.get("env"), document.get("setup", []), text[key.begin : key.end]
    lines, line = text.splitlines(keepends=True), text.count("\n", 0, key.begin)
    if "run" not in document or not isinstance(env, dict) or not isinstance(setup, list):
        return None
    names = [name for name, one in env.items() if one == value and locate(text).get(("env", name)) == line + 1]
    if len(names) != 1 or not names[0].isidentifier():
        return None
    command = f"{names[0]}=$(cat {shlex.quote(str(place))}) && export {names[0]} || exit 1"
    rest = {name: one for name, one in env.items() if name != names[0]}
    lines[line] = _without(lines[line], names[0])
    _with_setup(lines, command, "setup" in document, locate(text))
    changed = "".join(lines)
    try:
        now = tomllib.loads(changed)
    except tomllib.TOMLDecodeError:
        return None
    now.setdefault("env", {})
    return changed if now == {**document, "env": rest, "setup": [command, *setup]} else None


def _without(line: str, name: str) -> str:
    """Return the line of a document without a variable: what is left of an inline table, else nothing."""
    try:
        alone = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return line
    left = {one: value for one, value in alone.get("env", {}).items() if one != name}
    return f"env = {value_text(left)}\n" if left else ""


def _with_setup(lines: list[str], command: str, is_there: bool, found: dict[Any, int]) -> None:
    """Put a command first among the `setup` of a document."""
    at = found[("setup" if is_there else "run",)] - 1
    if is_there:
        lines[at] = _SETUP.sub(lambda match: f"{match.group()}{quoted(command)}, ", lines[at], count=1)
    else:
        lines.insert(at, f"setup = {quoted([command])}\n")


class NotebookKeys(NamedTuple):
    """What becomes of a notebook.

    Attributes:
        text: of it, as it is to be written.
        moved: the keys whose places have something else now, by the file that each belongs into.
        left: which keys stay, and why.
    """

    text: str
    moved: dict[Path, str]
    left: list[str]


def in_notebook(text: str, place_of: Callable[[str, str], Path]) -> NotebookKeys:
    """Have the cells of a notebook read their keys from files.

    Args:
        text: of the notebook.
        place_of: returns the file for a key, by its kind and value.

    Raises:
        ValueError: it is no notebook.
    """
    notebook = json.loads(text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    moved: dict[Path, str] = {}
    left: list[str] = []
    for number, cell in enumerate(notebook["cells"], 1):
        source = "".join(cell.get("source") or ())
        for key in sorted(keys_and_passwords_in(source), key=lambda key: -key.begin):
            value = source[key.begin : key.end]
            place = place_of(key.kind, value)
            changed = in_cell(source, key, place) if cell.get("cell_type") == "code" else None
            if changed is None:
                left.append(f"cell {number}: the {key.kind} key is only a part of a text: take it out by hand")
            else:
                moved[place], source = value, changed
                cell["source"] = source.splitlines(keepends=True)
        if any(keys_and_passwords_in(printed) for output in cell.get("outputs") or () for printed in _texts(output)):
            left.append(f"cell {number}: a key stands in what it has printed: clear its output, and save")
    indent = re.search(r'\n( +)"', text)
    again = json.dumps(notebook, ensure_ascii=False, indent=len(indent[1]) if indent else None)
    return NotebookKeys(again + "\n" * text.endswith("\n") if moved else text, moved, left)


def in_cell(source: str, key: Key, place: Path) -> str | None:
    """Return a cell with a reading of a file in a key's place: in Python, in `%env` and in `!` lines; None where that is not possible."""
    begin = source.rfind("\n", 0, key.begin) + 1
    end = source.find("\n", key.end) if "\n" in source[key.end :] else len(source)
    line = source[begin:end]
    magic = _ENV_MAGIC.fullmatch(line)
    if magic is not None and magic["value"] == source[key.begin : key.end]:
        statement = f"{magic['space']}import os; os.environ[{magic['name']!r}] = open({str(place)!r}).read()"
        return source[:begin] + statement + source[end:]
    if line.lstrip().startswith("!"):
        inside = in_shell(line, key._replace(begin=key.begin - begin, end=key.end - begin), place)
        return None if inside is None else source[:begin] + inside + source[end:]
    # Magics are no Python; as comments of the same length they leave the rest where it is.
    literal = literal_of(_MAGIC.sub(r"\1#", source), key)
    return None if literal is None else f"{source[: literal[0]]}open({str(place)!r}).read(){source[literal[1] :]}"


def _texts(output: Any) -> Iterator[str]:
    """Yield all texts within an output."""
    if isinstance(output, str):
        yield output
    elif isinstance(output, list) and all(isinstance(one, str) for one in output):
        yield "".join(output)
    elif isinstance(output, (list, dict)):
        for one in output.values() if isinstance(output, dict) else output:
            yield from _texts(one)
