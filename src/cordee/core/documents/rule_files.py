"""Files of rules: what the rules of all systems have in common, how a file of them is read, and how they are tried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from cordee.core.documents.faults import ValuePlace, fault_error, validated
from cordee.core.documents.fields import Document, wrong
from cordee.core.documents.patterns import PATTERN_FORMS, pattern_fault
from cordee.core.documents.yaml_lines import read_yaml
from cordee.core.findings import Finding

_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?\Z")


def as_tuple(value: Any) -> Any:
    """Return one value, or a list of them, as a tuple."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _id(value: str) -> str:
    if _ID.match(value) is None:
        raise wrong("is not the id of a rule", "small letters, digits and . _ - (at most 64), such as gpu.hot")
    return value


def _pattern(value: str) -> str:
    fault = pattern_fault(value)
    if fault is not None:
        raise wrong(fault, PATTERN_FORMS)
    return value


RuleId = Annotated[str, AfterValidator(_id)]
RulePattern = Annotated[str, AfterValidator(_pattern)]
RuleText = Annotated[str, Field(min_length=1, max_length=500)]
RuleSource = Annotated[str, Field(min_length=3, max_length=300)]
SeveralOf = BeforeValidator(as_tuple)


class CommonRule(Document):
    """What every rule has: an id, once in a file; what it says; where that is known from, a public document or a person."""

    id: RuleId
    text: RuleText
    source: RuleSource


class CommonRuleFile(Document):
    """A file of rules, in the order in which they are tried."""

    version: Literal[1]


F = TypeVar("F", bound=CommonRuleFile)


def read_rule_file(path: Path, kind: type[F]) -> F:
    """Return a YAML file of rules; every fault has a line.

    Args:
        path: of the file.
        kind: the model of such a file, whose `rules` are `CommonRule`s.

    Raises:
        DocumentError: it cannot be read, or breaks a rule of rules; says file and line.
    """
    document = read_yaml(path)
    file = validated(kind, document.values, lambda keys: ValuePlace(str(path), document.line(keys) or 1))
    rules: Sequence[CommonRule] = getattr(file, "rules")  # noqa: B009 - of the kinds, each with rules of its own
    first: dict[str, int] = {}
    for index, rule in enumerate(rules):
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


def trial_findings(
    file: str, rule: str, takes_example: bool, takes_other: bool, taken_by: str | None = None, line: int | None = None
) -> list[Finding]:
    """Return what is wrong with a rule that was put on trial with its example and its counterexample.

    Args:
        file: it stands in.
        rule: its id.
        takes_example, takes_other: whether it matches its example, and its counterexample.
        taken_by: the rule before it that takes the example, where only the first counts.
        line: of the file.
    """
    found = []
    if not takes_example:
        found.append(on_trial(file, rule, "does not match its example", "correct `when` or the example", line))
    elif taken_by is not None:
        text = f"never comes to its example: {taken_by} stands before it and takes it"
        found.append(on_trial(file, rule, text, "put the narrower rule first", line))
    if takes_other:
        found.append(on_trial(file, rule, "matches its counterexample", "narrow `when`", line))
    return found


def on_trial(file: str, rule: str, text: str, what: str, line: int | None = None, given: str | None = None) -> Finding:
    """Return that a rule does not do what its examples say."""
    return Finding(f"{rule} {text}", "error", "rule-on-trial", file=file, line=line, given=given or rule, next=what)
