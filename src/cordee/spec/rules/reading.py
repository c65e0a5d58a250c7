"""Reads a YAML file of rules into its model; every fault has a line."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from cordee.spec.faults import Place, document_error, fault_error, findings_of
from cordee.spec.rules.model import RuleFile
from cordee.spec.toml_lines import Keys
from cordee.spec.yaml_lines import read_yaml


def read_rules(path: Path) -> RuleFile:
    """Return the rules of a file.

    Raises:
        DocumentError: it cannot be read, or breaks a rule of rules; says file and line.
    """
    document = read_yaml(path)
    values = {} if document.values is None else document.values
    if not isinstance(values, dict):
        raise fault_error("it is not a table", "bad-value", file=str(path), line=1, allowed="`version: 1` and `rules:`")

    def place(keys: Keys) -> Place:
        return Place(str(path), document.line(keys) or 1)

    try:
        file = RuleFile.model_validate(values)
    except ValidationError as error:
        raise document_error(findings_of(error, RuleFile, values, place)) from None
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
