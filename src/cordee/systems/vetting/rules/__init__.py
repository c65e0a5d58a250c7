"""The catalogue of rules: what a result of a check means, whose fault it is, and what helps.

A rule holds no code: names, numbers and bounded regular expressions, tried in order by `cordee.systems.vetting.node.judge.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordee.systems.vetting.rules.model import VettingRule

# In this order: what names its fault goes before what only knows its kind.
OURS = ("xid", "gpu", "speed", "network", "host", "software", "general")
_FOLDER = Path(__file__).parent


def rule_files(paths: Sequence[Path] = ()) -> list[Path]:
    """Return the files in the order in which their rules are tried: a site's own, then ours.

    Args:
        paths: files, or folders whose `*.yaml` are taken in the order of their names.

    Raises:
        DocumentError: a path is not there.
    """
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return [*found, *(_FOLDER / f"{name}.yaml" for name in OURS)]


def read_catalogue(paths: Sequence[Path] = ()) -> list[tuple[Path, VettingRule]]:
    """Return all rules in the order in which they are tried, each with its file; where two have one id, the first counts.

    Raises:
        DocumentError: a file cannot be read, or is wrong.
    """
    from cordee.core.documents.rule_files import read_rule_file
    from cordee.systems.vetting.rules.model import RuleFile

    found: dict[str, tuple[Path, VettingRule]] = {}
    for path in rule_files(paths):
        for rule in read_rule_file(path, RuleFile).rules:
            found.setdefault(rule.id, (path, rule))
    return list(found.values())


def load_rules(paths: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Return the rules as a protocol's `rules` hold them: a site's own, then ours.

    Args:
        paths: as in `rule_files`.

    Raises:
        DocumentError: a file cannot be read, or is wrong.
    """
    own = {_FOLDER / f"{name}.yaml": f"cordee/{name}" for name in OURS}
    return [rule.resolved(own.get(path, str(path))) for path, rule in read_catalogue(paths)]
