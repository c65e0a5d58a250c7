"""Reads a YAML file of rules into its model; every fault has a line."""

from __future__ import annotations

from pathlib import Path

from cordee.core.documents.faults import ValuePlace, fault_error, validated
from cordee.core.documents.yaml_lines import read_yaml
from cordee.systems.vetting.rules.model import RuleFile


def read_rules(path: Path) -> RuleFile:
    """Return the rules of a file.

    Raises:
        DocumentError: it cannot be read, or breaks a rule of rules; says file and line.
    """
    document = read_yaml(path)
    file = validated(RuleFile, document.values, lambda keys: ValuePlace(str(path), document.line(keys) or 1))
    first: dict[str, int] = {}
    for index, rule in enumerate(file.rules):
        line = document.line(("rules", index)) or 1
        if rule.id in first:
            raise fault_error(
                f"two rules are called {rule.id}",
                "duplicate-rule",
                file=str(path),
                line=line,
                given=rule.id,
                allowed="each id once in a file",
                next=f"rename one of them; the first is in line {first[rule.id]}",
            )
        first[rule.id] = line
    return file
