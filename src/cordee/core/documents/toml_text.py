"""Values as TOML has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def quoted(value: str | Sequence[str]) -> str:
    """Return a text or a list of texts as TOML has it, on one line."""
    if not isinstance(value, str):
        return "[" + ", ".join(quoted(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def quoted_key(key: str) -> str:
    """Return a key as TOML has it."""
    return key if _BARE.fullmatch(key) else quoted(key)


def value_text(value: Any) -> str:
    """Return a value that was read from TOML as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{quoted_key(key)} = {value_text(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return quoted(str(value))
