"""A public class has a name of its own: whoever reads `SampleOrder` or searches for it finds one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"


def test_a_public_class_name_exists_once() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(homes) > 800
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not twice, "put the owner's noun in front of one of each (decision 35)"
