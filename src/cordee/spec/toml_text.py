"""Values as TOML has them."""

from __future__ import annotations

import json
from collections.abc import Sequence


def quoted(value: str | Sequence[str]) -> str:
    """Return a text or a list of texts as TOML has it, on one line."""
    if not isinstance(value, str):
        return "[" + ", ".join(quoted(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
