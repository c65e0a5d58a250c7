"""Keys as they are known: by their own form, or by a name before a value that looks like one."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

# A colour code ends with a letter, which belongs to no key. What begins in a form that no word has needs no edge.
_EDGE, _EDGE_END = r"(?:(?<![A-Za-z0-9_])|(?<=[0-9\[]m))", r"(?![A-Za-z0-9_/+-])"
_OWN_END = r"(?![A-Za-z0-9])"
_PEM_NAME = r"(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?"
# Whatever stands before them. Source: what the services document, or their keys show. Compiled once a text has a mark of theirs:
# every process of a run imports this.
FORMS = {
    "wandb": (
        r"(?i)(?:wandb[\w.\"'\]\[(:= -]{0,40}?(?:key|login|token)|WANDB_[A-Z_]+)[\"'\])]*[\s=:,(]+(?:--relogin\s+)?\\?[\"']?(?P<key>[0-9a-f]{40})(?![0-9A-Za-z])"
        r"|(?<![A-Za-z0-9_])(?P<new>wandb_v1_[A-Za-z0-9_-]{40,120})"
    ),
    "hugging-face": rf"(?P<key>(?:hf|api_org)_[A-Za-z0-9]{{30,40}}){_OWN_END}",
    "aws": rf"{_EDGE}(?P<key>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}){_EDGE_END}",
    "aws-secret": (
        r"(?i)aws[\w.\"'\] -]{0,30}?(?:secret|sk)[\w\"'\] -]{0,20}?\s*[=:,]\s*[\"']?(?P<key>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
    ),
    "azure": r"(?i)(?:AccountKey|SharedAccessKey)=(?P<key>[A-Za-z0-9+/]{43,86}={1,2})",
    "github": rf"(?P<key>(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{40,255}})){_OWN_END}",
    "gitlab": r"(?P<key>gl(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_-]{20,64})",
    "anthropic": rf"{_EDGE}(?P<key>sk-ant-[A-Za-z0-9_-]{{20,200}}){_EDGE_END}",
    "openai": (
        rf"{_EDGE}(?P<key>sk-(?!ant-)(?=[A-Za-z_-]*[0-9])(?:proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{{20,200}}){_EDGE_END}"
    ),
    "google": rf"{_EDGE}(?P<key>AIza[A-Za-z0-9_-]{{35}}){_EDGE_END}",
    "slack": (
        rf"{_EDGE}(?P<key>xox[abeoprs]-[A-Za-z0-9-]{{10,200}})|(?P<hook>hooks\.slack\.com/services/T\w{{6,14}}/B\w{{6,14}}/\w{{16,40}})"
    ),
    "pypi": r"(?P<key>pypi-[A-Za-z0-9_-]{40,250})",
    "npm": rf"(?P<key>npm_[A-Za-z0-9]{{36}}){_OWN_END}",
    "nvidia": r"(?P<key>nvapi-[A-Za-z0-9_-]{50,100})",
    "groq": rf"(?P<key>gsk_[A-Za-z0-9]{{40,60}}){_OWN_END}",
    "replicate": rf"{_EDGE}(?P<key>r8_[A-Za-z0-9]{{37,40}}){_EDGE_END}",
    "databricks": rf"{_EDGE}(?P<key>dapi[0-9a-f]{{32}}){_EDGE_END}",
    "docker": r"(?P<key>dckr_pat_[A-Za-z0-9_-]{20,60})",
    "vault": rf"{_EDGE}(?P<key>hv[sb]\.[A-Za-z0-9_-]{{24,200}})",
    "stripe": rf"{_EDGE}(?P<key>[sr]k_live_[A-Za-z0-9]{{20,120}}){_EDGE_END}",
    "sendgrid": rf"{_EDGE}(?P<key>SG\.[A-Za-z0-9_-]{{16,32}}\.[A-Za-z0-9_-]{{30,64}})",
    "jwt": (rf"{_EDGE}(?P<key>eyJ[A-Za-z0-9_-]{{10,2000}}\.eyJ[A-Za-z0-9_-]{{10,4000}}\.[A-Za-z0-9_-]{{20,1000}})"),
    "password-in-url": (
        r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>${}]{0,100}:(?P<key>[^\s/@\"'<>${}*]{4,200})@(?!sha[0-9]{3}:)(?=[A-Za-z0-9\[])"
    ),
    "private-key": (
        rf"(?P<key>-----BEGIN {_PEM_NAME}-----(?:(?:[^-]|-(?!----)){{0,16384}}-----END {_PEM_NAME}-----|[A-Za-z0-9+/=\s\\]{{0,16384}}))"
        r"|(?P<age>AGE-SECRET-KEY-1[0-9A-Z]{40,80})"
    ),
}
# What stands in every text that has such a key, in lower case: searched for first, which is much cheaper.
_MARKS = {
    "wandb": ("wandb",),
    "hugging-face": ("hf_", "api_org_"),
    "aws": ("akia", "asia", "abia", "acca"),
    "aws-secret": ("aws",),
    "azure": ("accountkey=", "sharedaccesskey="),
    "github": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab": ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"),
    "anthropic": ("sk-ant-",),
    "openai": ("sk-",),
    "google": ("aiza",),
    "slack": ("xox", "hooks.slack.com"),
    "pypi": ("pypi-",),
    "npm": ("npm_",),
    "nvidia": ("nvapi-",),
    "groq": ("gsk_",),
    "replicate": ("r8_",),
    "databricks": ("dapi",),
    "docker": ("dckr_pat_",),
    "vault": ("hvs.", "hvb."),
    "stripe": ("k_live_",),
    "sendgrid": ("sg.",),
    "jwt": ("eyj",),
    "password-in-url": ("://",),
    "private-key": ("private key", "age-secret-key"),
}
_ALL_MARKS = tuple(mark for marks in _MARKS.values() for mark in marks)
# What people write where a key belongs.
_NO_KEY = re.compile(
    r"(?i)x{6,}|\*{4,}|\.{3}|0{8,}|1234567|abcdefg|deadbeef|your|example|dummy|placeholder|change_?me|redacted|fake"
)
# Keys that services print in their documentation, and those of emulators.
_PUBLIC = frozenset(
    (
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
        ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
    )
)
_NO_PASSWORD = re.compile(r"(?i)pass|pwd|secret|token|user|%\(|x{3,}|\[|\A\d{1,5}\Z|key\b")
_LEAST_BODY = re.compile(r"[A-Za-z0-9+/]{40}")
# Beside names with values: the login of a registry, a header, and lists of variables (`name: X_KEY`, `value: ...`).
_NAMED = (
    r"(?:token|secret|password|passwd|passphrase|bearer|[\"']_?auth(?=\\?[\"'])|(?:api|access|auth|private|secret)[_-]?key)(?:[_-][a-z0-9]+){0,4}"
    r"\\?[\"']?\]?(?:\s{0,4}(?:=|:|\s)\s{0,4}|,?\s{0,40}\\?[\"']?value\\?[\"']?\s{0,2}:\s{0,4})\\?[\"']?(?P<value>[a-z0-9+/=_-]{20,200})(?![a-z0-9+/=_.(\[-])"
)
_CALLED = ("token", "secret", "passw", "passphrase", "key", "bearer", 'auth"', "auth'", "auth\\")
_LEAST_MIXED = 12
_LEAST_BITS = 3.6
ASSIGNED = "assigned"


class Key(NamedTuple):
    """A key that stands in a text.

    Attributes:
        kind: whose, such as `wandb`; `assigned`: nobody's form, but called a key and as random as one.
        begin, end: where in the text.
    """

    kind: str
    begin: int
    end: int


def keys_in(text: str, *, placeholders: bool = False) -> Iterator[Key]:
    """Yield the keys in a text that are known by their form.

    Args:
        text: that is searched.
        placeholders: whether what only stands in the place of a key counts, too.
    """
    lower = text.lower()
    for kind, pattern in FORMS.items() if any(map(lower.__contains__, _ALL_MARKS)) else ():
        for found in re.finditer(pattern, text) if any(mark in lower for mark in _MARKS[kind]) else ():
            group = found.lastgroup or "key"
            if placeholders or _is_key(kind, found[group]):
                yield Key(kind, *found.span(group))


def lowered(text: str) -> str:
    """Return a text in lower case in which each letter stands where it stood."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)  # some are two in lower case


def is_placeholder(value: str) -> bool:
    """Return whether a value only stands in the place of a key, or is an example that a service has published."""
    return bool(_NO_KEY.search(value)) or value in _PUBLIC


def named_keys_in(text: str) -> Iterator[Key]:
    """Yield what is called a token, a password or a key, and looks random."""
    lower = lowered(text)
    if not any(name in lower for name in _CALLED):
        return
    for found in re.finditer(_NAMED, lower):
        begin, end = found.span("value")
        if is_random(text[begin:end]) and not is_placeholder(text[begin:end]):
            yield Key(ASSIGNED, begin, end)


def all_keys_in(text: str) -> list[Key]:
    """Return the keys in a text by their form, and behind them what is only called one."""
    known = list(keys_in(text))
    return [*known, *apart(named_keys_in(text), known)]


def apart(keys: Iterable[Key], known: Iterable[Key]) -> Iterator[Key]:
    """Yield the keys that stand where none of the known ones does."""
    places = sorted((key.begin, key.end) for key in known)
    begins, ends = [begin for begin, _ in places], list(accumulate((end for _, end in places), max))
    for key in keys:
        before = bisect_left(begins, key.end)
        if before == 0 or ends[before - 1] <= key.begin:
            yield key


def is_random(value: str) -> bool:
    """Return whether a text has letters and digits, in no order that words have."""
    if not _is_mixed(value):
        return False
    bits = -sum(
        count / len(value) * math.log2(count / len(value)) for count in (value.count(letter) for letter in set(value))
    )
    return bits >= _LEAST_BITS


def _is_mixed(value: str) -> bool:
    """Return whether enough of a text are parts in which letters and digits stand together, unlike in `llama-3-8b-instruct`."""
    parts = re.split("[-_/.]", value)
    return sum(len(part) for part in parts if re.search("[0-9]", part) and re.search("[A-Za-z]", part)) >= _LEAST_MIXED


def _is_key(kind: str, key: str) -> bool:
    if kind == "private-key":
        return bool(_LEAST_BODY.search(key.replace("\n", "").replace("\\n", "").replace(" ", "")))
    if kind == "password-in-url":
        return len(set(key)) > 3 and not _NO_PASSWORD.search(key) and not is_placeholder(key)
    if kind == "openai" and not _is_mixed(key):
        return False
    return len(set(key)) > 5 and not is_placeholder(key)
