"""Variables in the texts of an EDF: `${VAR}`, the forms of a shell such as `${VAR:-default}`, and `$$` for a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from cordee.core.words import did_you_mean

FORMS = "${NAME}, ${NAME:-default} and the like (:= :? :+ % %% # ##), and $$ for a dollar sign"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# `:` in front of the first four: an empty variable is as one that is not defined.
_OPERATOR = re.compile(r":?[-=?+]|%%?|##?")
_SPECIAL = re.compile(r"[$}]")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_BARE = re.compile(r"(?<!\$)(?:\$\$)*\$([A-Za-z_][A-Za-z0-9_]*)")


class ExpansionError(Exception):
    """A reference that cannot be filled in; `rule`, `given`, `allowed` and `next` are as in a Finding."""

    def __init__(self, text: str, rule: str, given: str, allowed: str | None, next: str) -> None:
        super().__init__(text)
        self.text, self.rule, self.given, self.allowed, self.next = text, rule, given, allowed, next


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its variables filled in; a default may hold references itself.

    Raises:
        ExpansionError: a variable is not defined, or a reference is of no known form.
    """
    if "$" not in text:
        return text
    try:
        return _read(text, 0, variables, inside=False, used=True)[0]
    except RecursionError:
        raise _malformed(text[:60], "is nested too deeply") from None


def bare_names(text: str) -> list[str]:
    """Return the names that stand behind a dollar sign without braces, which are left as they are."""
    return _BARE.findall(text) if "$" in text else []


def names_in(text: str) -> list[str]:
    """Return the names that a text refers to, in defaults too, each once."""
    return list(dict.fromkeys(_BRACED.findall(text.replace("$$", "")))) if "${" in text else []


def _read(text: str, at: int, variables: Mapping[str, str], *, inside: bool, used: bool) -> tuple[str, int]:
    """Return what stands from `at` on, expanded, and where it ends: at the brace that closes it where `inside`."""
    parts: list[str] = []
    begin = at
    while at < len(text):
        if inside and text[at] == "}":
            return "".join(parts), at + 1
        if text.startswith("$$", at):
            parts.append("$")
            at += 2
        elif text.startswith("${", at):
            value, at = _reference(text, at, variables, used)
            parts.append(value)
        else:
            match = _SPECIAL.search(text, at + 1)
            end = match.start() if match else len(text)
            parts.append(text[at:end])
            at = end
    if inside:
        raise _malformed(text[begin:][:60], "is not closed")
    return "".join(parts), at


def _reference(text: str, at: int, variables: Mapping[str, str], used: bool) -> tuple[str, int]:
    """Return the value of the reference at `at`, and where it ends; nothing is looked up where it is not `used`."""
    match = _NAME.match(text, at + 2)
    if match is None:
        raise _malformed(_shown(text, at), "names no variable")
    name, at_end = match.group(), match.end()
    if text.startswith("}", at_end):
        if used and name not in variables:
            raise _undefined(name, variables)
        return variables.get(name, ""), at_end + 1
    operator = _OPERATOR.match(text, at_end)
    if operator is None:
        closed = "}" in text[at_end:]
        raise _malformed(_shown(text, at), "is of no known form" if closed else "is not closed")
    kind, value = operator.group()[-1], variables.get(name)
    there = bool(value) if operator.group().startswith(":") else value is not None
    needed = {"-": not there, "=": not there, "?": not there, "+": there}.get(kind, True)
    word, end = _read(text, operator.end(), variables, inside=True, used=used and needed)
    if kind in "-=":
        return (value or "") if there else word, end
    if kind == "+":
        return word if there else "", end
    if used and not there and (kind == "?" or value is None):
        raise _undefined(name, variables, word if kind == "?" else "")
    return _without(value or "", word, operator.group()) if kind in "%#" else value or "", end


def _without(value: str, pattern: str, operator: str) -> str:
    """Return a value without what a pattern of the shell matches at its end (%) or front (#): the most of it (%%, ##), or the least."""
    at_end, most = operator[0] == "%", len(operator) == 2
    cuts = range(len(value) + 1) if at_end == most else range(len(value), -1, -1)
    for cut in cuts:
        if fnmatchcase(value[cut:] if at_end else value[:cut], pattern):
            return value[:cut] if at_end else value[cut:]
    return value


def _shown(text: str, at: int) -> str:
    end = text.find("}", at)
    return text[at : end + 1 if end >= 0 else None][:60]


def _malformed(given: str, complaint: str) -> ExpansionError:
    return ExpansionError(
        f"{complaint}: {given}", "bad-reference", given, FORMS, "write $$ where a dollar sign is meant"
    )


def _undefined(name: str, variables: Mapping[str, str], words: str = "") -> ExpansionError:
    hint = did_you_mean(name, variables, f"export {name}, or write ${{{name}:-}} where it may be missing", 0.8)
    return ExpansionError(
        f"uses the variable {name}, which is not defined{f': {words}' if words else ''}",
        "undefined-variable",
        f"${{{name}}}",
        None,
        hint,
    )
