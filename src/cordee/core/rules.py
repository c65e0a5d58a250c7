"""How the conditions of rules hold: rules are data, and nothing of them is evaluated as code."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import Any, Iterable, Pattern

MOST_TEXT = 8192


def several(given: Any) -> Any:
    """Return what a condition names, one value or a list of them, as a list."""
    return given if isinstance(given, (list, tuple)) else (given,)


def any_glob(name: str, globs: Iterable[str]) -> bool:
    """Return whether a name is, or fits, one of these globs, such as `gpu.*`; case counts."""
    return any(name == glob or fnmatch.fnmatchcase(name, glob) for glob in globs)


def any_pattern(text: str, patterns: Any) -> bool:
    """Return whether one of these regular expressions is found in a text, of which the first 8,192 characters count."""
    return any(_compiled(pattern).search(text[:MOST_TEXT]) for pattern in several(patterns))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Pattern[str]:
    return re.compile(pattern)
