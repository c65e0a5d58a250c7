"""No circle of imports: modules form an order, imports inside functions and imports for types counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"


def name_of(path: Path) -> str:
    """Return the full name of a module: `cordee.runs.folder`, and `cordee.runs` for a package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> Iterator[str]:
    """Yield the names that a source imports anywhere, each with its full path: modules, and names within them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return for every module the modules of the same sources that it imports, itself left out."""
    arrows: dict[str, set[str]] = {}
    for module, source in sources.items():
        found = (name if name in sources else name.rpartition(".")[0] for name in imported(source))
        arrows[module] = {name for name in found if name in sources} - {module}
    return arrows


def way(arrows: Mapping[str, set[str]], start: str, end: str) -> list[str]:
    """Return the shortest way along arrows from one module to another, both ends named; empty when there is none."""
    ways = [[start]]
    seen = set()
    for path in ways:
        for following in sorted(arrows[path[-1]] - seen):
            if following == end:
                return [*path, end]
            seen.add(following)
            ways.append([*path, following])
    return []


def circles(arrows: Mapping[str, set[str]]) -> list[str]:
    """Return the shortest circle of every group of modules that reach each other: `a -> b -> a`."""
    found: dict[frozenset[str], list[str]] = {}
    reached = {module: reachable(arrows, module) for module in arrows}
    for module in sorted(arrows):
        if module in reached[module]:
            group = frozenset(other for other in reached[module] if module in reached[other])
            circle = way(arrows, module, module)
            if group not in found or len(circle) < len(found[group]):
                found[group] = circle
    return [" -> ".join(circle) for circle in found.values()]


def reachable(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """Return every module that can be reached from one along at least one arrow."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_modules_import_each_other_in_no_circle():
    sources = {name_of(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    found = circles(arrows_of(sources))
    cure = "a data class in the room's model.py, a factory in a module of its own, or one file of two cuts a circle"
    assert not found, "\n".join([*found, cure])


@pytest.mark.parametrize(
    "import_of_b",
    [
        "from cordee.b import made",
        "import cordee.b",
        "from cordee import b",
        "def late():\n    from cordee.b import made",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cordee.b import Made",
    ],
)
def test_a_circle_is_found_however_its_imports_are_written(import_of_b):
    sources = {"cordee": "", "cordee.a": import_of_b, "cordee.b": "import cordee.c", "cordee.c": "import cordee.a"}
    assert circles(arrows_of(sources)) == ["cordee.a -> cordee.b -> cordee.c -> cordee.a"]


def test_two_ways_to_one_module_are_no_circle():
    sources = {"cordee.a": "import cordee.b, cordee.c", "cordee.b": "import cordee.c", "cordee.c": "import json"}
    assert circles(arrows_of(sources)) == []
