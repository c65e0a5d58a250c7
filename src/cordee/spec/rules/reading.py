"""Reads a YAML file of rules into its model; every fault has a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cordee.errors import DocumentError
from cordee.spec.faults import Place, document_error, fault_error, findings_of
from cordee.spec.rules.model import RuleFile
from cordee.spec.toml_lines import Keys

LARGEST_BYTES = 1_000_000
_DEEPEST = 12
_MOST_VALUES = 100_000


def read_rules(path: Path) -> RuleFile:
    """Return the rules of a file.

    Raises:
        DocumentError: it cannot be read, or breaks a rule of rules; says file and line.
    """
    text = _text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = _Values(str(path))
        document = values.of(node) if node is not None else {}
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        words = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise fault_error(
            f"it is not YAML: {words}", "not-yaml", file=str(path), line=mark.line + 1 if mark else None
        ) from None
    except RecursionError:
        raise fault_error("it is nested too deeply", "not-yaml", file=str(path)) from None
    if not isinstance(document, dict):
        raise fault_error("it is not a table", "bad-value", file=str(path), line=1, allowed="`version: 1` and `rules:`")

    def place(keys: Keys) -> Place:
        count = next((count for count in range(len(keys), 0, -1) if keys[:count] in values.lines), 0)
        return Place(str(path), values.lines.get(keys[:count], 1))

    try:
        file = RuleFile.model_validate(document)
    except ValidationError as error:
        raise document_error(findings_of(error, RuleFile, document, place)) from None
    first: dict[str, int] = {}
    for index, rule in enumerate(file.rules):
        if rule.id in first:
            raise fault_error(
                f"two rules are called {rule.id}",
                "duplicate-rule",
                file=str(path),
                line=place(("rules", index)).line,
                given=rule.id,
                next=f"rename one of them; the first is in line {place(('rules', first[rule.id])).line}",
            )
        first[rule.id] = index
    return file


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"the rules cannot be read: {error.strerror or error}", file=str(path)) from None
    if len(content) > LARGEST_BYTES:
        raise DocumentError("the file of rules is too large", file=str(path), allowed=f"{LARGEST_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(f"the rules are not UTF-8: {error.reason}", file=str(path)) from None


class _Values:
    """Turns YAML nodes into plain values and notes the line of each; an alias becomes a copy, and copies are counted."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Keys, int] = {}
        self._loader = yaml.SafeLoader("")

    def of(self, node: Any, keys: Keys = ()) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(keys, line)
        if len(keys) > _DEEPEST:
            raise fault_error("it is nested too deeply", "not-yaml", file=self.file, line=line)
        if len(self.lines) > _MOST_VALUES:
            raise fault_error("it holds too many values", "not-yaml", file=self.file, line=line)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(value, (*keys, index)) for index, value in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        return self._loader.construct_object(node)

    def _mapping(self, node: Any, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in found:
                raise fault_error(f"{key} is given twice", "duplicate-key", file=self.file, line=line, given=key)
            self.lines[(*keys, key)] = line
            found[key] = self.of(value, (*keys, key))
        return found
