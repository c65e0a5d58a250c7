"""Which files are of the node side: their path says it, and nothing else does.

The node side runs on Python 3.9 with the standard library alone and travels with every run as one zip. It is the rooms marked
here, every folder `node/` of the others, and the `__init__.py` above these, which hold docstrings or what is as light.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

NODE_ROOMS = ("core", "machine", "wire", "runs", "client", "control")
# Kits of the document side within these rooms.
DOCUMENT_KITS = ("core/documents", "core/draw", "core/terminal", "core/web", "machine/squashfs", "machine/images")
PUBLISHED = ("checks.py",)  # what checks of other people import


def is_node_side(path: PurePath) -> bool:
    """Return whether a file of the package, named by its path within it, is of the node side by its own place."""
    words = path.parts
    if any(path.is_relative_to(kit) for kit in DOCUMENT_KITS):
        return False
    return words[0] in NODE_ROOMS or "node" in words[:-1] or path.as_posix() in PUBLISHED


def node_side_files(package: Path) -> Iterator[Path]:
    """Yield the Python files of the node side of a package, sorted."""
    files = sorted(package.rglob("*.py"))
    own = {path for path in files if is_node_side(path.relative_to(package))}
    above = {folder for path in own for folder in path.parents if folder.is_relative_to(package)}
    yield from (path for path in files if path in own or (path.name == "__init__.py" and path.parent in above))
