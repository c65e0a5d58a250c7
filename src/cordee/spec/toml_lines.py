"""Finds the line of a key in a TOML text; used when something is wrong, since tomllib keeps no lines."""

from __future__ import annotations

import re

_BARE = r"[A-Za-z0-9_-]+"
_BASIC = r'"(?:[^"\\\n]|\\.)*"'
_LITERAL = r"'[^'\n]*'"
_PART = re.compile(rf"\s*({_BARE}|{_BASIC}|{_LITERAL})\s*")
_LINE_OF_ERROR = re.compile(r"\(at line (\d+), column \d+\)")


def error_line(message: str, text: str) -> int:
    """Return the line that a message of tomllib's TOMLDecodeError names; the last line for "at end of document"."""
    match = _LINE_OF_ERROR.search(message)
    return int(match.group(1)) if match else max(1, text.count("\n") + (not text.endswith("\n")))


def find_line(text: str, path: tuple[str | int, ...]) -> int | None:
    """Return the line (from 1) where the key at `path` is defined, else that of its nearest parent; None for none.

    Args:
        text: a valid TOML document.
        path: keys, and indices into arrays of tables.
    """
    wanted = tuple(part for part in path if isinstance(part, str))
    best: tuple[int, int] | None = None
    for keys, line in key_lines(text):
        depth = 0
        while depth < min(len(keys), len(wanted)) and keys[depth] == wanted[depth]:
            depth += 1
        if depth == len(keys) and (best is None or depth > best[0]):
            best = (depth, line)
        elif depth == len(wanted) and depth and (best is None or depth > best[0]):
            best = (depth, line)
    return best[1] if best else None


def key_lines(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Return (whole path of keys, line) for every table header and key, those in inline tables included."""
    found: list[tuple[tuple[str, ...], int]] = []
    table: tuple[str, ...] = ()
    at, size = 0, len(text)
    while at < size:
        at = _skip_blank(text, at)
        if at >= size:
            break
        if text[at] == "[":
            double = text.startswith("[[", at)
            keys, at = _keys(text, at + (2 if double else 1))
            table = keys
            found.append((table, text.count("\n", 0, at) + 1))
            at = _line_end(text, at)
            continue
        start = at
        keys, at = _keys(text, at)
        if not keys or at >= size or text[at] != "=":
            at = _line_end(text, start)
            continue
        found.append((table + keys, text.count("\n", 0, start) + 1))
        at = _value(text, at + 1, table + keys, found)
        at = _line_end(text, at)
    return found


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        else:
            break
    return at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    keys = []
    while True:
        match = _PART.match(text, at)
        if match is None:
            return tuple(keys), at
        keys.append(_plain(match.group(1)))
        at = match.end()
        if at >= len(text) or text[at] != ".":
            return tuple(keys), at
        at += 1


def _plain(token: str) -> str:
    if token[0] == "'":
        return token[1:-1]
    if token[0] == '"':
        import tomllib

        value: str = tomllib.loads(f"k = {token}")["k"]
        return value
    return token


def _value(text: str, at: int, path: tuple[str, ...], found: list[tuple[tuple[str, ...], int]]) -> int:
    """Pass over one value, noting the keys of inline tables; return where it ends."""
    while at < len(text) and text[at] in " \t":
        at += 1
    for quotes in ('"""', "'''"):
        if text.startswith(quotes, at):
            return _string_end(text, at, quotes)
    if at < len(text) and text[at] in "\"'":
        return _string_end(text, at, text[at])
    if at < len(text) and text[at] == "[":
        at = _skip_blank(text, at + 1)
        while at < len(text) and text[at] != "]":
            at = _skip_blank(text, _value(text, at, path, found))
            if at < len(text) and text[at] == ",":
                at = _skip_blank(text, at + 1)
        return at + 1
    if at < len(text) and text[at] == "{":
        at = _skip_blank(text, at + 1)
        while at < len(text) and text[at] != "}":
            keys, after = _keys(text, at)
            if not keys or after >= len(text) or text[after] != "=":
                return after
            found.append((path + keys, text.count("\n", 0, at) + 1))
            at = _skip_blank(text, _value(text, after + 1, path + keys, found))
            if at < len(text) and text[at] == ",":
                at = _skip_blank(text, at + 1)
        return at + 1
    while at < len(text) and text[at] not in ",]}#\n":
        at += 1
    return at


def _string_end(text: str, at: int, quotes: str) -> int:
    position = at + len(quotes)
    while position < len(text):
        if quotes[0] == '"' and text[position] == "\\":
            position += 2
        elif text.startswith(quotes, position):
            position += len(quotes)
            while len(quotes) == 3 and text.startswith(quotes[0], position):
                position += 1
            return position
        else:
            position += 1
    return position
