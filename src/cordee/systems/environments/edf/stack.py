"""The tables `[startup]` and `[stack]` of an EDF: what runs inside first, and what lies over the image."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.core.documents.toml_lines import Keys
from cordee.core.findings import Finding
from cordee.core.units import format_duration, parse_duration
from cordee.core.words import nearest
from cordee.systems.environments.edf.expand import ExpansionError, expand
from cordee.systems.environments.edf.fields import GivenValue, fault
from cordee.systems.environments.edf.mounts import PATHS, absolute, path_hint, split_parts
from cordee.systems.environments.node.document import Environment

# For each table its keys, and whether a list of texts belongs there or one text.
_KEYS = {
    "startup": {"commands": True, "timeout": False},
    "stack": {"overlay": False, "views": True, "modules": True},
}
_TEXTS = 'a list of texts in quotes, such as ["..."]'
VIEW_FORMS = "FILE, FILE:VIEW, FILE:/TARGET or FILE:/TARGET:VIEW, views joined by a comma"


@dataclass(frozen=True)
class StackView:
    """A squashfs file that is laid over the image.

    Attributes:
        file: an absolute path of the host.
        target: where it is mounted; empty: where the file itself says.
        views: the views of it that set variables, in their order.
    """

    file: str
    target: str = ""
    views: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the text by which an EDF says it."""
        parts = [self.file, *([self.target] if self.target else []), *([",".join(self.views)] if self.views else [])]
        return ":".join(part.replace("\\", "\\\\").replace(":", "\\:").replace("$", "$$") for part in parts)


class StackTables:
    """What all the files of an EDF say in these tables: lists one after the other, bases first; of the rest the last one.

    Args:
        additions: of the merged EDF, for each table what every file says, the one that holds first.
        cwd: where relative paths begin.
        variables: of the host, for paths; commands are the shell's, which fills in its own.

    Attributes:
        views: with where each is given.
        given: for the paths of keys that `explain` shows, what gives them.
        findings: what is wrong.
    """

    def __init__(self, additions: Mapping[str, list[GivenValue]], cwd: Path, variables: Mapping[str, str]) -> None:
        self._cwd, self._variables = cwd, variables
        self.findings: list[Finding] = []
        self.views: list[tuple[StackView, GivenValue]] = []
        self.given: dict[Keys, list[GivenValue]] = {}
        self._commands: list[str] = []
        self._modules: list[str] = []
        self._timeout_s = Environment.startup_s
        self._overlay = ""
        for table in _KEYS:
            for told in reversed(additions.get(table, [])):
                for given in self._sound(table, told):
                    self._take(given)

    def settings(self) -> dict[str, Any]:
        """Return the fields of `Environment` that these tables give; modules are loaded before the first command."""
        modules = [f"module load {' '.join(map(shlex.quote, self._modules))}"] if self._modules else []
        return {
            "startup": (*modules, *self._commands),
            "startup_s": self._timeout_s,
            "overlay": self._overlay,
        }

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return both tables as one EDF that inherits nothing says them."""
        overlay = self._overlay.replace("$", "$$")
        stack = {"overlay": overlay, "views": [view.text() for view, _ in self.views], "modules": self._modules}
        startup: dict[str, Any] = {"commands": self._commands}
        if self._commands and self._timeout_s != Environment.startup_s:
            startup["timeout"] = format_duration(self._timeout_s)
        found = {"startup": startup, "stack": stack}
        shown = {name: {key: value for key, value in table.items() if value} for name, table in found.items()}
        return {name: table for name, table in shown.items() if table}

    def _sound(self, table: str, told: GivenValue) -> Iterator[GivenValue]:
        """Yield each value of a table, elements of lists by themselves; what is of another form is a finding."""
        keys = _KEYS[table]
        for key, value in told.value.items():
            where: Keys = (table, key)
            if key not in keys:
                near = nearest(key, keys)
                hint = f"did you mean {near}?" if near else "take it out"
                self._refuse(told, where, "is not known", "unknown-key", given=key, allowed=list(keys), next=hint)
            elif keys[key] and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                self._refuse(told, where, "is not a list of texts", "bad-value", given=str(value), allowed=_TEXTS)
            elif not keys[key] and not isinstance(value, str):
                self._refuse(told, where, "is not a text in quotes", "bad-value", given=str(value))
            elif "\0" in str(value):
                self._refuse(told, where, "holds a NUL character", "bad-value")
            elif keys[key]:
                yield from (
                    GivenValue(told.edf, (*where, index), text) for index, text in enumerate(value) if text.strip()
                )
            else:
                yield GivenValue(told.edf, where, value)

    def _take(self, given: GivenValue) -> None:
        key = given.keys[1]
        if key == "commands":
            self.given["startup", "commands", len(self._commands)] = [given]
            self._commands.append(given.value)
        elif key == "modules":
            self._modules += given.value.split()
            self.given.setdefault(("stack", "modules"), []).insert(0, given)
        elif key == "timeout":
            try:
                self._timeout_s = parse_duration(given.value)
            except ValueError as error:
                self._refuse(given, given.keys, f"is no duration: {error}", "bad-value", given=given.value)
        else:
            try:
                self._take_path(given, str(key))
            except ExpansionError as error:
                details = {"given": error.given, "allowed": error.allowed, "next": error.next}
                self._refuse(given, given.keys, error.text, error.rule, **details)

    def _take_path(self, given: GivenValue, key: str) -> None:
        parts = [expand(part, self._variables) for part in split_parts(given.value)]
        if not parts[0]:
            return
        if not parts[0].startswith(("/", ".")):
            hint = path_hint(parts[0])
            self._refuse(given, given.keys, "is no path", "bad-value", given=parts[0], allowed=PATHS, next=hint)
            return
        path = absolute(parts[0], self._cwd)
        if key == "overlay":
            self._overlay = path if len(parts) == 1 else absolute(":".join(parts), self._cwd)
            self.given.setdefault(("stack", "overlay"), []).insert(0, given)
            return
        target = parts.pop(1) if len(parts) > 1 and parts[1].startswith("/") else ""
        if len(parts) > 2:
            self._refuse(given, given.keys, "has too many parts", "bad-value", given=given.value, allowed=VIEW_FORMS)
            return
        views = tuple(name for name in parts[1].split(",") if name) if len(parts) == 2 else ()
        self.given["stack", "views", len(self.views)] = [given]
        self.views.append((StackView(path, target.rstrip("/"), views), given))

    def _refuse(self, told: GivenValue, keys: Keys, complaint: str, rule: str, **details: Any) -> None:
        self.findings.append(fault(told.edf, keys, complaint, rule, **details))
