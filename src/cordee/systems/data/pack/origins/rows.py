"""Rows of tables as samples: keys and fields from names that were not made for files."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NO_PART_OF_A_FIELD = re.compile(r"[/\n\r\0]+")
_NO_PART_OF_A_KEY = re.compile(rb"[.\n\r\0]")


def fields_of(names: Iterable[str]) -> dict[str, str]:
    """Return what each column or feature is called as a field: in lower case, `.` where its name has a slash.

    Names that would be the same field get `~2`, `~3` behind them, in their order.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names)):
        field = _NO_PART_OF_A_FIELD.sub(".", name).strip(".").lower() or "bin"
        free, number = field, 1
        while free in taken:
            number += 1
            free = f"{field}~{number}"
        taken.add(free)
        found[name] = free
    return found


def numbered(values: Iterable[str | None]) -> tuple[list[str], dict[str | None, int]]:
    """Return names of classes and the number of each; numbers stay what they are, without names."""
    texts = sorted({text for text in values if text})
    if texts and all(text.lstrip("-").isdecimal() for text in texts):
        return [], {text: int(text) for text in texts}
    return texts, {text: number for number, text in enumerate(texts)}


def key_of(name: bytes) -> bytes:
    """Return a name as the key of a sample: no dots in its last part; empty where nothing of it could be one."""
    folder, _, base = name.strip(b"/").rpartition(b"/")
    parts = [part for part in folder.split(b"/") if part not in (b"", b".", b"..")]
    folder = b"/".join(re.sub(rb"[\n\r\0]", b"_", part) for part in parts)
    base = _NO_PART_OF_A_KEY.sub(b"_", base)
    return folder + b"/" + base if folder and base else base
