"""Rules on trial: each must match its own example and spare its counterexample, and none before it may take its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    found = []
    for path, rule in read_catalogue(paths):
        example, other = rule.example.result(), rule.counterexample.result()
        first = match(resolved, example)
        if match([by_id[rule.id]], example) is None:
            found.append(_fault(path, rule.id, "does not match its example", "correct `when` or the example"))
        elif first is not None and first["id"] != rule.id:
            text = f"never comes to its example: {first['id']} stands before it and takes it"
            found.append(_fault(path, rule.id, text, "put the narrower rule first"))
        if match([by_id[rule.id]], other) is not None:
            found.append(_fault(path, rule.id, "matches its counterexample", "narrow `when`"))
    return found


def _fault(path: Path, rule: str, text: str, what: str) -> Finding:
    return Finding(f"{rule} {text}", "error", "rule-on-trial", file=str(path), given=rule, next=what)
