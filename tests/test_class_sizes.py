"""A class is small enough to be read as a whole: what has grown beyond that has a part with a state of its own to give away."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"
MOST_LINES = 300


def class_lines() -> dict[str, int]:
    """Return how many lines each class has, by its file and its name."""
    return {
        f"{path.relative_to(PACKAGE)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_a_class_has_at_most_300_lines() -> None:
    lines = class_lines()
    assert len(lines) > 1000
    large = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert not large, "move what has a state of its own, or none, out of the class; a mixin does not make it smaller"
