"""What an EDF may hold: its keys, their types, and what one file gives for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.faults import dotted, shown
from cordee.core.documents.toml_lines import Keys, find_line
from cordee.core.findings import Finding
from cordee.core.words import nearest

SCALARS = ("image", "workdir", "entrypoint", "writable")
DEFAULTS: dict[str, Any] = {"image": "", "workdir": None, "entrypoint": False, "writable": True}
LISTS = ("mounts", "devices")
TABLES = ("env", "annotations")
# Tables of Cordée's own, and those of them of which an environment keeps what they say and not the text.
ADDITIONS = ("build", "startup", "stack")
MERGED = ("startup", "stack")
KEYS = ("base_environment", *SCALARS, *LISTS, *TABLES, *ADDITIONS)


@dataclass(frozen=True)
class Edf:
    """One file as it was read; `values` holds what is well-formed, by the keys of the format."""

    path: Path
    text: str
    values: Mapping[str, Any]

    def line(self, keys: Keys) -> int | None:
        """Return the line (from 1) where a path of keys is given."""
        return find_line(self.text, keys)


class GivenValue(NamedTuple):
    """A value as one file gives it, before expansion, and the path of keys where it stands."""

    edf: Edf
    keys: Keys
    value: Any


class _Kind(NamedTuple):
    fits: Callable[[Any], bool]
    complaint: str
    allowed: str


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_TEXT = _Kind(lambda value: isinstance(value, str), "is not a text in quotes", "a text in quotes")
_SWITCH = _Kind(lambda value: isinstance(value, bool), "is not true or false", "true or false, without quotes")
_TEXTS = _Kind(_is_texts, "is not a list of texts", 'a list of texts in quotes, such as ["..."]')
_TABLE = _Kind(lambda value: isinstance(value, dict), "is not a table", "a table")
_BASES = _Kind(
    lambda value: isinstance(value, str) or _is_texts(value),
    "is neither the name of an EDF nor a list of them",
    "a name or path in quotes, or a list of them",
)
_KINDS = {
    "base_environment": _BASES,
    "image": _TEXT,
    "workdir": _TEXT,
    "entrypoint": _SWITCH,
    "writable": _SWITCH,
    "mounts": _TEXTS,
    "devices": _TEXTS,
    **dict.fromkeys((*TABLES, *ADDITIONS), _TABLE),
}
_ANNOTATION = "a text in quotes, a number, or true or false"


def read_values(path: Path, text: str, document: Mapping[str, Any], lenient: bool) -> tuple[Edf, list[Finding]]:
    """Return a file's content with what is wrong in it.

    Args:
        path, text: of the file.
        document: what TOML says of it.
        lenient: unknown keys are kept with a warning.
    """
    edf = Edf(path, text, document)
    findings = [finding for key in document for finding in _faults_of(edf, key, lenient)]
    if any(finding.severity == "error" for finding in findings):
        sound = {key: value for key, value in document.items() if not any(_faults_of(edf, key, lenient))}
        edf = Edf(path, text, sound)
    return edf, findings


def annotations_of(edf: Edf) -> Iterator[tuple[str, GivenValue]]:
    """Yield (dotted key, value as text) of every annotation of a file, nested or dotted."""
    yield from (
        (key, GivenValue(edf, keys, _as_text(value))) for key, keys, value in _leaves(edf.values["annotations"])
    )


def bases_of(edf: Edf) -> list[tuple[str, Keys]]:
    """Return the names of the EDFs that a file inherits from, each with its path of keys."""
    given = edf.values.get("base_environment", "")
    if isinstance(given, str):
        return [(given, ("base_environment",))] if given else []
    return [(name, ("base_environment", index)) for index, name in enumerate(given)]


def fault(edf: Edf, keys: Keys, complaint: str, rule: str, **details: Any) -> Finding:
    """Return the finding for a value of a file: its dotted name, then the complaint."""
    return Finding(f"{dotted(keys)} {complaint}", "error", rule, file=str(edf.path), line=edf.line(keys), **details)


def _faults_of(edf: Edf, key: str, lenient: bool) -> Iterator[Finding]:
    value = edf.values[key]
    if key not in _KINDS:
        yield _unknown(edf, key, lenient)
    elif not _KINDS[key].fits(value):
        kind = _KINDS[key]
        yield _bad(edf, _first_bad(key, value), kind.complaint, value, kind.allowed)
    elif key == "env":
        yield from _faults_of_env(edf, value)
    elif key == "annotations":
        for name, keys, leaf in _leaves(value):
            if not isinstance(leaf, (str, bool, int, float)):
                yield _bad(edf, keys, "is not a value of an annotation", leaf, _ANNOTATION)
            elif "\0" in name or "\0" in str(leaf):
                yield _bad(edf, keys, "holds a NUL character", leaf, "a text without NUL")
    else:
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):
            yield _bad(edf, (key,), "holds a NUL character", value, "a text without NUL")


def _faults_of_env(edf: Edf, table: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in table.items():
        keys: Keys = ("env", name)
        if not name or "=" in name or "\0" in name:
            yield _bad(edf, keys, "is not the name of a variable", name, "a name without = in it")
        elif isinstance(value, (bool, int, float)):
            shown = _as_text(value)
            yield _bad(edf, keys, "is not a text in quotes", shown, "a text in quotes", f'write {name} = "{shown}"')
        elif not isinstance(value, str):
            yield _bad(edf, keys, "is not a text in quotes", value, "a text in quotes")
        elif "\0" in value:
            yield _bad(edf, keys, "holds a NUL character", value, "a text without NUL")


def _first_bad(key: str, value: Any) -> Keys:
    """Return the keys of the value, or of the element of a list that is no text."""
    if isinstance(value, list) and _KINDS[key] in (_TEXTS, _BASES):
        return (key, next(index for index, each in enumerate(value) if not isinstance(each, str)))
    return (key,)


def _bad(edf: Edf, keys: Keys, complaint: str, given: Any, allowed: str, hint: str | None = None) -> Finding:
    return fault(
        edf, keys, complaint, "bad-value", given=shown(given), allowed=allowed, next=hint or f"change {dotted(keys)}"
    )


def _unknown(edf: Edf, key: str, lenient: bool) -> Finding:
    near = nearest(key.lower(), KEYS)
    hint = f"did you mean {near}?" if near else f"remove {key}, or keep it with --lenient if the site knows it"
    if not near and isinstance(edf.values[key], dict):
        hint = f"annotations belong below [annotations]; else {hint}"
    return Finding(
        f"an EDF has no key {key}" + ("; it is kept and not used" if lenient else ""),
        "warn" if lenient else "error",
        "unknown-key",
        file=str(edf.path),
        line=edf.line((key,)),
        given=key,
        allowed=list(KEYS),
        next=hint,
    )


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[str, Keys, Any]]:
    """Yield (dotted key, path of keys, value) of what stands in the table of annotations, however deep."""
    left: list[tuple[Keys, Any]] = [(("annotations",), table)]
    while left:
        keys, value = left.pop()
        if isinstance(value, dict):
            left.extend(((*keys, name), inner) for name, inner in reversed(value.items()))
        else:
            yield ".".join(map(str, keys[1:])), keys, value


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
