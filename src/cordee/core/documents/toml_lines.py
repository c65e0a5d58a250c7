"""Finds the line of a key in a TOML text; used when something is wrong, since tomllib keeps no lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

import tomllib

Keys = tuple[str | int, ...]

_KEY_PART = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_LINE_OF_ERROR = re.compile(r"\(at line (\d+), column \d+\)")
_PLAIN_VALUE = re.compile(r"[^,\]}#\n]*")
_STRINGS = (
    re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def error_line(message: str, text: str) -> int:
    """Return the line that a message of tomllib's TOMLDecodeError names; the last line for "at end of document"."""
    match = _LINE_OF_ERROR.search(message)
    return int(match.group(1)) if match else max(1, text.count("\n") + (not text.endswith("\n")))


def find_line(text: str, path: Keys) -> int | None:
    """Return the line (from 1) where `path` is defined, else that of its nearest parent; None when there is none.

    Args:
        text: a TOML document.
        path: keys, and indices into arrays.
    """
    lines = locate(text)
    for count in range(len(path), 0, -1):
        if path[:count] in lines:
            return lines[path[:count]]
    return None


@lru_cache(maxsize=16)
def locate(text: str) -> dict[Keys, int]:
    """Return the line of every table, key and array element of a TOML document, by its whole path.

    A table is where its name is written first. Of a text that is no TOML, whatever comes before the fault is found.
    """
    scanner = _Scanner(text)
    try:
        scanner.document()
    except (_NotToml, tomllib.TOMLDecodeError, RecursionError):
        pass
    return scanner.found


class _NotToml(Exception):
    pass


class _Scanner:
    """One pass over a TOML text that notes where things are and does not care what values mean."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Keys, int] = {}
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._counts: dict[Keys, int] = {}

    def document(self) -> None:
        table: Keys = ()
        self._blank()
        while self.at < len(self.text):
            start = self.at
            if self._take("[["):
                table = self._array_of_tables(self._keys(), start)
                self._expect("]]")
            elif self._take("["):
                table = self._inside((), self._keys(), start)
                self._expect("]")
            else:
                self._pair(table)
            self._blank()

    def _pair(self, table: Keys) -> None:
        start = self.at
        keys = self._keys()
        self._expect("=")
        self._value(self._inside(table, keys, start))

    def _value(self, path: Keys) -> None:
        self._spaces()
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            self._inline_table(path)
        else:
            for pattern in (*_STRINGS, _PLAIN_VALUE):
                match = pattern.match(self.text, self.at)
                if match is not None:
                    self.at = match.end()
                    return

    def _array(self, path: Keys) -> None:
        self._blank()
        index = 0
        while not self._take("]"):
            self._note((*path, index), self.at)
            self._value((*path, index))
            self._blank()
            if not self._take(",") and not self.text.startswith("]", self.at):
                raise _NotToml
            self._blank()
            index += 1

    def _inline_table(self, path: Keys) -> None:
        self._blank()
        while not self._take("}"):
            self._pair(path)
            self._blank()
            if not self._take(",") and not self.text.startswith("}", self.at):
                raise _NotToml
            self._blank()

    def _array_of_tables(self, keys: list[str], start: int) -> Keys:
        path = (*self._inside((), keys[:-1], start), keys[-1])
        self._note(path, start)
        index = self._counts.get(path, -1) + 1
        self._counts[path] = index
        self._note((*path, index), start)
        return (*path, index)

    def _inside(self, table: Keys, keys: list[str], start: int) -> Keys:
        """Return the whole path of `keys` below a table, and note where each part is first named."""
        path = table
        for key in keys:
            path = (*path, key)
            self._note(path, start)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _note(self, path: Keys, at: int) -> None:
        self.found.setdefault(path, bisect_right(self._ends, at - 1) + 1)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while not keys or self._take("."):
            match = _KEY_PART.match(self.text, self.at)
            if match is None:
                raise _NotToml
            token = match.group(1)
            keys.append(tomllib.loads(f"key = {token}")["key"] if token[0] in "\"'" else token)
            self.at = match.end()
        return keys

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise _NotToml

    def _spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
