"""A job document for a command line that names what to run: `cordee run train.py --lr 1e-3`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from cordee.core.documents.toml_text import quoted_key, value_text
from cordee.job.command import script_of

_INTERPRETERS = {".py": "python", ".sh": "bash"}
_PLAIN = re.compile(r"[\w./=:,@%+-]+")


def is_program(word: str, more: Sequence[str]) -> bool:
    """Return whether a word of a command line names what to run, and not a job document or its folder.

    Args:
        more: the words behind it.
    """
    path = Path(word)
    if path.is_dir() or path.suffix == ".toml":
        return False
    if path.suffix in _INTERPRETERS:
        return True
    return os.access(path, os.X_OK) if path.is_file() else bool(more) and shutil.which(word) is not None


def argv_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that a person means: a script with its interpreter, anything else as it is."""
    interpreter = _INTERPRETERS.get(PurePath(words[0]).suffix)
    if interpreter:
        return (interpreter, *words)
    if "/" not in words[0] and os.path.isfile(words[0]) and os.access(words[0], os.X_OK):
        return (f"./{words[0]}", *words[1:])
    return tuple(words)


def job_name(text: str) -> str:
    """Return a text as a job may be named."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "training"


def document_of(argv: Sequence[str], settings: Mapping[str, Any] | None = None) -> str:
    """Return the text of a job document that runs a command.

    Args:
        settings: values by dotted key that the document has besides, as flags of the command line gave them.
    """
    name = job_name(PurePath(_named(tuple(argv))).name.removesuffix(".py").removesuffix(".sh"))
    run: str | list[str] = shlex.join(argv) if all(_PLAIN.fullmatch(word) for word in argv) else list(argv)
    lines = ["# Made by `cordee run` from its command line."]
    tables: dict[tuple[str, ...], list[str]] = {}
    for dotted, value in {"name": name, "run": run, **(settings or {})}.items():
        *table, key = dotted.split(".")
        tables.setdefault(tuple(table), []).append(f"{quoted_key(key)} = {value_text(value)}")
    for keys, values in sorted(tables.items()):
        head = ["", f"[{'.'.join(map(quoted_key, keys))}]"] if keys else []
        lines += [*head, *values]
    return "\n".join(lines) + "\n"


def _named(argv: tuple[str, ...]) -> str:
    """Return what a command runs: its script, its module, or the command itself."""
    if "-m" in argv[:-1]:
        return script_of(argv) or argv[argv.index("-m") + 1]
    script = next((word for word in argv[1:2] if argv[0] == "bash" and word.endswith(".sh")), None)
    return script_of(argv) or script or argv[0]
