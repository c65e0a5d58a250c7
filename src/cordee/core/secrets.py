"""Secrets are not shown: neither values of variables, nor what stands behind a secret's name in a command or a script.

Only what is shown passes here. What a run needs to work is written as it is into its folder, which nobody else may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cordee.core.secret_forms import Key, all_keys_in, keys_in, named_keys_in

MASK = "***"
_LONGEST_NAMED = 4 << 20

_NAME = (
    r"(?:[A-Za-z0-9]{1,40}[_.-]){0,8}"
    r"(?:token|secret|password|passwd|passphrase|credentials?|(?:api|access|auth|private|secret)[_-]?key)"
    r"(?:[_-][A-Za-z0-9]{1,40}){0,8}"
)
_VALUE = (
    r"(?![\"']?(?:\$|\{))(?:\"[^\"]*\"|'[^']*'|[^\s\"'&;|]+)"  # what the shell or Cordée puts in is no secret itself
)
_PATTERNS = (
    rf"(?i)((?<![A-Za-z0-9_]){_NAME}[\"']?(?:=|:\s*)){_VALUE}",
    rf"(?i)(--?{_NAME}\s+)(?!-){_VALUE}",
    r"(?i)((?:authorization:\s*\w+|bearer)\s+)[^\s\"'@&;]+",
    r"(://[^/\s:@]*:)[^\s/@]+(?=@)(?!@sha[0-9]{3}:)",
)
# In what programs print, a word behind "Bearer" is none of a sentence when it is long and has a digit.
_BEARER = r"(?i)(\bbearer\s+|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|token)\s+)(?=[^\s\"']*[0-9])[\w.~+/=-]{16,}"
# By a part of its name the value of a variable is one, which may be anything; of options fewer words mean that.
_SECRET_PARTS = frozenset(
    [
        "pass",
        "pat",
        "pw",
        "pwd",
        "key",
        "keys",
        "apikey",
        "token",
        "secret",
        "cred",
        "creds",
        "credential",
        "credentials",
        "auth",
    ]
)
# What Python and libraries of this field are tuned with; other numbers of few digits, and switches, are as harmless.
_TUNES = re.compile(
    r"(?:(?:OMP|KMP|GOMP|MKL|OPENBLAS|NUMEXPR|NCCL|RCCL|UCX|FI|GLOO|CUDA|CUDNN|CUBLAS|NVIDIA|HIP|HSA|ROCR|MIOPEN|TORCH|PYTORCH"
    r"|XLA|JAX|MPICH|OMPI|PMIX)_|(?:TF_CPP|TF_XLA|TF_GPU|TF_NUM)_"
    r"|(?:PYTHON(?:UNBUFFERED|HASHSEED|PATH|HOME|OPTIMIZE|WARNINGS|FAULTHANDLER|MALLOC|UTF8|NOUSERSITE|DONTWRITEBYTECODE)"
    r"|TOKENIZERS_PARALLELISM|TRITON_CACHE_DIR)\Z)"
)
_SWITCH = re.compile(r"(?i)(?:-?[0-9]{1,5}(?:\.[0-9]{1,4})?|true|false|yes|no|on|off|none|auto)\Z")
# In the name of a number it makes a secret of it; in the value of any variable it looks like a key.
_SECRET_NUMBER = re.compile(r"(?i)pass|pin|pw|code|key|token|secret|cred|auth|lock|ssn|otp|salt")
_RANDOM = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{20,}")
_FLAG = re.compile(rf"(?i)--?{_NAME}\Z")
_SECRET_NAME = re.compile(rf"(?i){_NAME}\Z")
# Shorter ones are words as often, and what begins so is a place or put in by the shell.
_LEAST_SECRET, _NO_SECRET = 8, ("/", "~", "$", "{", ".", "<")
_NAME_MARKS = ("token", "secret", "passw", "passphrase", "credential", "key", "bearer", "authorization", "://")
_PEM_EDGE = re.compile(r"-----(?P<which>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"[\s\"'+\\]{0,40}(?:[A-Za-z0-9+/=]{0,100}|(?:Proc-Type|DEK-Info): .{1,80})[\s\"'\\n]{0,10}\Z")
_MOST_MASKED_LINES = 400
_MOST_RANKS = 4096


def masked_text(text: str) -> str:
    """Return a text, such as a command or a script, without the values of what is called a token, a password or a key, and without keys."""
    for pattern in _patterns_for(text):
        text = re.sub(pattern, rf"\1{MASK}", text)
    return _without(text, keys_in(text, placeholders=True))


def _patterns_for(text: str) -> Sequence[str]:
    """Return the patterns of named secrets that are worth a search in a text."""
    lower = text.lower() if len(text) < _LONGEST_NAMED else ""
    return _PATTERNS if any(map(lower.__contains__, _NAME_MARKS)) else ()


def secret_values(env: Mapping[str, str], argv: Sequence[str]) -> frozenset[str]:
    """Return the secrets that a program is given: values of variables and options that are called a token, a password or a key, and keys.

    A word may be a line for a shell that gives some to others.
    """
    found = {value for name, value in env.items() if _SECRET_NAME.match(name) or _has_secret_part(name)}
    after_name = False
    for word in argv:
        name, _, value = word.partition("=")
        found.update([word] if after_name and not word.startswith("-") else [value] if _FLAG.match(name) else ())
        after_name = bool(_FLAG.match(word))
        for pattern in _patterns_for(word):
            found.update(named[0][len(named[1]) :].strip("\"'") for named in re.finditer(pattern, word))
    for name, value in (*env.items(), *_with_options(argv)):
        found.update(_keys_of(name, value))
    return frozenset(value for value in found if len(value) >= _LEAST_SECRET and not value.startswith(_NO_SECRET))


def _has_secret_part(name: str) -> bool:
    return not _SECRET_PARTS.isdisjoint(re.split(r"[_.-]", name.lower()))


def masked_output(text: str, known: Collection[str] = ()) -> str:
    """Return what a program printed without keys: those that are known by their form, and what is called a key and looks random.

    What only has the name of one stays, such as `pad_token=<pad>`.

    Args:
        text: that was printed.
        known: secrets that the program was given, see `secret_values`.
    """
    masked = text
    for secret in known:
        if secret in masked:
            masked = masked.replace(secret, MASK)
    if "earer" in masked or "uthorization" in masked or "BEARER" in masked:
        masked = re.sub(_BEARER, rf"\1{MASK}", masked)
    masked = _without(masked, keys_in(masked))
    return _without(masked, named_keys_in(masked))


class OutputMask:
    """Masks what programs print, line by line, keys of several lines included.

    One is for lines that follow each other; lines of several streams are told apart by what they are of.

    Args:
        known: secrets that the programs were given, see `secret_values`.
        by_rank: returns those that one of them was given beside these.

    Attributes:
        known: returns the secrets that a rank was given, as they stand in text that was read as Latin-1.
    """

    def __init__(
        self, known: Collection[str] = (), by_rank: Callable[[int], Collection[str]] = lambda rank: ()
    ) -> None:
        self._inside: dict[Hashable, int] = {}
        self.known = lru_cache(_MOST_RANKS)(
            lambda rank: [secret.encode().decode("latin-1") for secret in (*known, *by_rank(rank))]
        )

    def line(self, data: bytes, of: Hashable = None, rank: int = -1) -> bytes:
        """Return a line as it may be shown; bytes that are no key stay as they are.

        Args:
            data: the line.
            of: the stream that it belongs to.
            rank: that printed it.
        """
        text = data.decode("latin-1")
        edges = list(_PEM_EDGE.finditer(text)) if "PRIVATE KEY" in text else ()
        left = self._inside.pop(of, 0)
        if edges:
            begun = edges[-1]["which"] == "BEGIN"
            if begun:
                self._inside[of] = _MOST_MASKED_LINES
            begin = 0 if edges[0]["which"] == "END" else edges[0].start()
            return f"{text[:begin]}{MASK}{'' if begun else text[edges[-1].end() :]}".encode("latin-1")
        if left and _PEM_BODY.match(text):
            self._inside[of] = left - 1
            return MASK.encode()
        masked = masked_output(text, self.known(rank))
        return data if masked is text else masked.encode("latin-1")


def _without(text: str, keys: Iterable[Key]) -> str:
    parts, end = [], 0
    for key in sorted(keys, key=lambda key: key.begin):
        if key.begin >= end:
            parts += [text[end : key.begin], MASK]
        end = max(end, key.end)
    return "".join([*parts, text[end:]]) if parts else text


def masked_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command, masked as `masked_text` does."""
    shown: list[str] = []
    for option, word in _with_options(words):
        given = word
        for key in _keys_of(option, word):
            given = given.replace(key, MASK)
        shown.append(MASK if _FLAG.match(option) and not word.startswith("-") else masked_text(given))
    return shown


def _with_options(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command, each behind the option before it; behind "" where there is none."""
    before = ""
    for word in words:
        yield before, word
        before = word if word.startswith("-") else ""


def _keys_of(name: str, value: str) -> Iterator[str]:
    """Yield the keys in a value, by their form or by the name of the variable or the option that has it."""
    text = f"{name}={value}" if name else value
    yield from (text[key.begin : key.end] for key in all_keys_in(text) if key.begin >= len(text) - len(value))


def masked_values(variables: Mapping[str, Any], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables without their values, of which any may be secret.

    Shown are those that are `known` to be none, numbers and switches, and what tunes libraries of this field, unless their
    names say that they are secrets.
    """
    shown = {name: str(value) for name, value in variables.items() if _is_harmless(name, str(value))} | dict(
        known or {}
    )
    return {name: masked_text(shown[name]) if name in shown else MASK for name in variables}


def _is_harmless(name: str, value: str) -> bool:
    if _SECRET_NAME.match(name) or _has_secret_part(name) or _RANDOM.search(value):
        return False
    return bool(_TUNES.match(name) or (_SWITCH.match(value) and not _SECRET_NUMBER.search(name)))


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
