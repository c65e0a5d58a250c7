"""What other systems may ask of the scan: whether the files of a model may be loaded."""

from __future__ import annotations

from pathlib import Path

from cordee.core.findings import Finding
from cordee.systems.scan.files import scan_tree, tree_of
from cordee.systems.scan.rules import RULES


def model_findings(folder: Path) -> list[Finding]:
    """Return what is to be said of a model's files (the port `scanned-model`): errors where one must not be loaded, or nobody can say."""
    tree = tree_of([str(folder)])
    found = [
        Finding("it is no regular file, and is not opened", "error", "scan-special", file=path, next="remove it")
        for path in tree.special
    ]
    for verdict in scan_tree(tree).bad:
        found += [
            Finding(
                sight.text,
                "error" if sight.severity in ("block", "unknown") else "warn",
                f"scan-{sight.rule}",
                file=verdict.path,
                next=RULES[sight.rule].next if sight.rule in RULES else None,
            )
            for sight in verdict.sights
        ]
    return found
