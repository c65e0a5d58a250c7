"""Values laid over each other, each remembering where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cordee.core.documents.faults import ValuePlace
from cordee.core.documents.toml_lines import Keys

_FILES = ("document", "user profile", "site profile")


@dataclass(frozen=True)
class ValueOrigin:
    """Where a value came from.

    Attributes:
        kind: `flag`, `environment`, `document`, `command line`, `user profile`, `site profile`, `this machine` or `default`.
        name: the file, flag or variable.
        line: line of the file, from 1.
        prefix: the table of overrides it stands in, as `("on", "local")`.
    """

    kind: str
    name: str = ""
    line: int | None = None
    prefix: tuple[str, ...] = ()

    @property
    def file(self) -> str | None:
        """The file, None when it came from elsewhere."""
        return self.name if self.kind in _FILES else None

    def __str__(self) -> str:
        place = f"{self.name}:{self.line}" if self.line else self.name
        return f"{self.kind} {place}".strip()


class Merge:
    """Tables merged key by key, everything else replaced by what is laid over it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[tuple[str, ...], ValueOrigin] = {}
        self._origin_of: dict[tuple[str, ...], Callable[[Keys], ValueOrigin]] = {}

    def add(
        self, document: Mapping[str, Any], origin: Callable[[Keys], ValueOrigin], prefix: tuple[str, ...] = ()
    ) -> None:
        """Lay a document over what is there.

        Args:
            document: tables and values.
            origin: returns where a path of keys of the document was given.
        """
        for key, value in document.items():
            keys = (*prefix, key)
            if not isinstance(value, dict):
                self.set(keys, value, origin)
                continue
            table = self._table(prefix)
            if not isinstance(table.get(key), dict):
                table[key] = {}
                self._forget(keys)
            self._remember(keys, origin)
            self.add(value, origin, keys)

    def set(self, keys: tuple[str, ...], value: Any, origin: Callable[[Keys], ValueOrigin]) -> None:
        """Lay one value over what is there."""
        table = self._table(keys[:-1])
        self._forget(keys)
        table[keys[-1]] = value
        self._remember(keys, origin)

    def place(self, path: Keys, fallback: ValuePlace) -> ValuePlace:
        """Return where `path` was given, or the nearest of its parents; `fallback` when nobody gave it."""
        names = []
        for part in path:
            if isinstance(part, int):
                break
            names.append(part)
        for count in range(len(names), 0, -1):
            origin_of = self._origin_of.get(tuple(names[:count]))
            if origin_of is not None:
                origin = origin_of(path if count == len(names) else tuple(names))
                return ValuePlace(origin.file, origin.line, origin.prefix, "" if origin.file else origin.name)
        below = next((origin for known, origin in self.origins.items() if known[: len(names)] == tuple(names)), None)
        if names and below is not None:
            return ValuePlace(below.file, below.line, below.prefix, "" if below.file else below.name)
        return fallback

    def _remember(self, keys: tuple[str, ...], origin: Callable[[Keys], ValueOrigin]) -> None:
        self.origins[keys] = origin(keys)
        self._origin_of[keys] = origin

    def _forget(self, keys: tuple[str, ...]) -> None:
        """Drop the origins of what was there before."""
        for known in [known for known in self.origins if known[: len(keys)] == keys]:
            del self.origins[known], self._origin_of[known]

    def _table(self, keys: tuple[str, ...]) -> dict[str, Any]:
        table = self.values
        for count, key in enumerate(keys, start=1):
            if not isinstance(table.get(key), dict):
                table[key] = {}
                self._forget(keys[:count])
            table = table[key]
        return table
