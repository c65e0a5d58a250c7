"""Reads a YAML file of rules into its model; every fault has a line."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from cordee.core.documents.faults import ValuePlace, document_error, fault_error, findings_of
from cordee.core.documents.yaml_lines import read_yaml
from cordee.systems.vetting.rules.model import RuleFile


def read_rules(path: Path) -> RuleFile:
    """Return the rules of a file.

    Raises:
        DocumentError: it cannot be read, or breaks a rule of rules; says file and line.
    """
    document = read_yaml(path)
    if not isinstance(document.values, dict):
        raise fault_error("it is not a table", "bad-value", file=str(path), line=1, allowed="`version: 1` and `rules:`")
    try:
        file = RuleFile.model_validate(document.values)
    except ValidationError as error:
        places = findings_of(
            error, RuleFile, document.values, lambda keys: ValuePlace(str(path), document.line(keys) or 1)
        )
        raise document_error(places) from None
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
