"""Rules on trial: each must match its own example and spare its counterexample, and none before it may take its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordee.core.documents.rule_files import trial_findings
from cordee.core.findings import Finding
from cordee.systems.vetting.node.judge.rules import match
from cordee.systems.vetting.rules import load_rules, read_catalogue


def examine_rules(paths: Sequence[Path] = ()) -> list[Finding]:
    """Return what is wrong with the rules in these files (without any: with ours).

    Raises:
        DocumentError: a file cannot be read, or is no file of rules.
    """
    resolved = load_rules(paths)
    by_id = {rule["id"]: rule for rule in resolved}
    found: list[Finding] = []
    for path, rule in read_catalogue(paths):
        example, other = rule.example.result(), rule.counterexample.result()
        first = match(resolved, example)
        before = first["id"] if first is not None and first["id"] != rule.id else None
        own = [by_id[rule.id]]
        takes, takes_other = match(own, example) is not None, match(own, other) is not None
        found += trial_findings(str(path), rule.id, takes, takes_other, before)
    return found
