"""Finds what only a shell would understand in a command that no shell runs."""

from __future__ import annotations

import re
from pathlib import PurePath

_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")
_SYNTAX = (
    (re.compile(r"\$\(|`"), "runs another command"),
    (re.compile(r"&&|\|\||;|\||(?<![>&\d])&(?!>)"), "joins commands"),
    (re.compile(r"\d?>>?(?:&\d)?|&>|<"), "redirects"),
    (re.compile(r"\$\{?\w+"), "is a variable"),
)
_GLOB = re.compile(r"(?<!\S)\S*[*?]\S*|(?<!\S)\S*\[[^\]\s]+\]\S*")
_HOME = re.compile(r"(?<!\S)~(?=/|\s|\Z)")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)=")


def shell_words(run: object) -> list[tuple[str, str]]:
    """Return (what stands there, what a shell would do with it) for each kind of shell syntax in `run`.

    A list is words already and has none; nor has a command that is a shell. What stands in single quotes counts as
    meant, in double quotes only variables and commands are looked for, as a shell would.
    """
    if not isinstance(run, str) or PurePath(run.split(maxsplit=1)[0] if run.split() else "").name in _SHELLS:
        return []
    bare, half = _outside_quotes(run)
    found = []
    assignment = _ASSIGNMENT.match(bare)
    if assignment:
        found.append((run.split()[0], "sets a variable"))
    for pattern, meaning in _SYNTAX:
        match = pattern.search(half if meaning in ("runs another command", "is a variable") else bare)
        if match:
            found.append((match.group().strip(), meaning))
    for pattern, meaning in ((_GLOB, "matches files"), (_HOME, "is your home folder")):
        match = pattern.search(bare)
        if match:
            found.append((match.group().strip(), meaning))
    return found


def _outside_quotes(text: str) -> tuple[str, str]:
    """Return the text with all quoted parts blanked, and with only those in single quotes blanked."""
    bare, half, quote, position = [], [], "", 0
    while position < len(text):
        letter = text[position]
        if letter == "\\" and quote != "'":
            bare.append("__")
            half.append("__")
            position += 2
            continue
        if quote:
            bare.append("_")
            half.append(letter if quote == '"' else "_")
            quote = "" if letter == quote else quote
        else:
            quote = letter if letter in "'\"" else ""
            bare.append("_" if quote else letter)
            half.append("_" if quote else letter)
        position += 1
    return "".join(bare), "".join(half)
