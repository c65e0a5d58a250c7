"""Secrets are not shown: neither values of variables, nor what stands behind a secret's name in a command or a script.

Only what is shown passes here. What a run needs to work is written as it is into its folder, which nobody else may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"

_NAME = (
    r"(?:[A-Za-z0-9]+[_.-])*"
    r"(?:token|secret|password|passwd|passphrase|credentials?|(?:api|access|auth|private|secret)[_-]?key)"
    r"(?:[_-][A-Za-z0-9]+)*"
)
_VALUE = (
    r"(?![\"']?(?:\$|\{))(?:\"[^\"]*\"|'[^']*'|[^\s\"'&;|]+)"  # what the shell or Cordée puts in is no secret itself
)
_PATTERNS = (
    re.compile(rf"(?i)((?<![A-Za-z0-9_]){_NAME}[\"']?(?:=|:\s*)){_VALUE}"),
    re.compile(rf"(?i)(--?{_NAME}\s+)(?!-){_VALUE}"),
    re.compile(r"(?i)((?:authorization:\s*\w+|bearer)\s+)[^\s\"'@&;]+"),
    re.compile(r"(://[^/\s:@]*:)[^\s/@]+(?=@)"),
)
_FLAG = re.compile(rf"(?i)--?{_NAME}\Z")


def masked_text(text: str) -> str:
    """Return a text, such as a command or a script, without the values of what is called a token, a password or a key."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def masked_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command, masked as `masked_text` does."""
    shown: list[str] = []
    after_name = False
    for word in words:
        masked = after_name and not word.startswith("-")
        after_name = bool(_FLAG.match(word))
        shown.append(MASK if masked else masked_text(word))
    return shown


def masked_values(variables: Mapping[str, Any], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables without their values, of which any may be secret, but for those that are `known` to be none."""
    harmless = known or {}
    return {name: masked_text(harmless[name]) if name in harmless else MASK for name in variables}


def masked_document(value: Any, known: Mapping[str, str] | None = None) -> Any:
    """Return a document without secrets: values below any `env`, and those in its texts and lists of words."""
    if isinstance(value, dict):
        return {
            key: masked_values(inner, known)
            if key == "env" and isinstance(inner, dict)
            else masked_document(inner, known)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return masked_words(value)
        return [masked_document(item, known) for item in value]
    return masked_text(value) if isinstance(value, str) else value
