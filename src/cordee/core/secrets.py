"""Secrets are not shown: neither values of variables, nor what stands behind a secret's name in a command or a script.

Only what is shown passes here. What a run needs to work is written as it is into its folder, which nobody else may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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
_EDGE, _EDGE_END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_/+-])"
# Keys that are known by their form, whatever stands before them. Source: what the services document, or their keys show.
_KEYS = {
    "wandb": re.compile(
        r"(?i)(?:wandb[\w.\"'\]\[(:= -]{0,40}?(?:key|login|token)|WANDB_[A-Z_]+)[\"'\])]*[\s=:,(]+(?:--relogin\s+)?[\"']?(?P<key>[0-9a-f]{40})(?![0-9A-Za-z])"
    ),
    "hugging-face": re.compile(rf"{_EDGE}(?P<key>(?:hf|api_org)_[A-Za-z0-9]{{30,40}}){_EDGE_END}"),
    "aws": re.compile(rf"{_EDGE}(?P<key>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}){_EDGE_END}"),
    "aws-secret": re.compile(
        r"(?i)aws[\w.\"'\] -]{0,30}?(?:secret|sk)[\w\"'\] -]{0,20}?\s*[=:,]\s*[\"']?(?P<key>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
    ),
    "github": re.compile(
        rf"{_EDGE}(?P<key>(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{40,255}})){_EDGE_END}"
    ),
    "gitlab": re.compile(rf"{_EDGE}(?P<key>gl(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_-]{{20,64}})"),
    "openai": re.compile(
        rf"{_EDGE}(?P<key>sk-(?=[A-Za-z_-]*[0-9])(?:proj-|svcacct-|ant-(?:api\d\d-)?|or-v1-)?[A-Za-z0-9_-]{{20,200}}){_EDGE_END}"
    ),
    "google": re.compile(rf"{_EDGE}(?P<key>AIza[A-Za-z0-9_-]{{35}}){_EDGE_END}"),
    "slack": re.compile(rf"{_EDGE}(?P<key>xox[abeoprs]-[A-Za-z0-9-]{{10,200}})"),
    "pypi": re.compile(rf"{_EDGE}(?P<key>pypi-[A-Za-z0-9_-]{{40,250}})"),
    "private-key": re.compile(
        r"(?P<key>-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[^-]{0,16384}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)"
    ),
}
# What people write where a key belongs.
_NO_KEY = re.compile(
    r"(?i)x{6,}|\*{4,}|0{8,}|1234567|abcdefg|deadbeef|your|example|dummy|placeholder|changeme|redacted|fake"
)


# What stands in every text that has such a key, in lower case: searched for first, which is much cheaper.
_MARKS = {
    "wandb": ("wandb",),
    "hugging-face": ("hf_", "api_org_"),
    "aws": ("akia", "asia", "abia", "acca"),
    "aws-secret": ("aws",),
    "github": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab": ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"),
    "openai": ("sk-",),
    "google": ("aiza",),
    "slack": ("xox",),
    "pypi": ("pypi-",),
    "private-key": ("private key",),
}


class Key(NamedTuple):
    """A key that stands in a text.

    Attributes:
        kind: whose, such as `wandb`.
        begin, end: where in the text.
    """

    kind: str
    begin: int
    end: int


def keys_in(text: str) -> Iterator[Key]:
    """Yield the keys in a text that are known by their form; placeholders are none."""
    lower = text.lower()
    for kind, pattern in _KEYS.items():
        for found in pattern.finditer(text) if any(mark in lower for mark in _MARKS[kind]) else ():
            key = found.group("key")
            if len(set(key)) > 5 and (kind == "private-key" or not _NO_KEY.search(key)):
                yield Key(kind, *found.span("key"))


def masked_text(text: str) -> str:
    """Return a text, such as a command or a script, without the values of what is called a token, a password or a key, and without keys."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{MASK}", text)
    lower = text.lower()
    for kind, pattern in _KEYS.items():
        if any(mark in lower for mark in _MARKS[kind]):
            text = pattern.sub(lambda found: found.group().replace(found.group("key"), MASK), text)
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
