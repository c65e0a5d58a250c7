"""Which files are of the node side: their path says it, and nothing else does.

The node side runs on Python 3.9 with the standard library alone and travels with every run as one zip. It is the rooms marked
here, every folder `node/` of the others, and the `__init__.py` above these, which hold docstrings or what is as light.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

NODE_ROOMS = ("core", "machine", "wire", "runs", "client", "control")
# Kits of the document side within these rooms.
DOCUMENT_KITS = ("core/documents", "core/draw", "core/terminal", "core/web", "machine/squashfs", "machine/images")
PUBLISHED = ("checks.py",)  # what checks of other people import


def _holds_node_side(folder: str) -> bool:
    words = folder.split("/")
    if any(folder == kit or folder.startswith(f"{kit}/") for kit in DOCUMENT_KITS):
        return False
    return words[0] in NODE_ROOMS or "node" in words


def node_side_files(package: Path) -> Iterator[Path]:
    """Yield the Python files of the node side of a package, sorted."""
    found = {str(package / name) for name in PUBLISHED}
    # By strings and folder by folder: each run that is made waits for this.
    for place, _, names in os.walk(package):
        if _holds_node_side(os.path.relpath(place, package).replace(os.sep, "/")):
            found.update(os.path.join(place, name) for name in names if name.endswith(".py"))
    above: set[str] = set()
    for folder in {os.path.dirname(path) for path in found}:
        while len(folder) >= len(str(package)) and folder not in above:
            above.add(folder)
            folder = os.path.dirname(folder)
    found.update(init for folder in above if os.path.isfile(init := os.path.join(folder, "__init__.py")))
    yield from map(Path, sorted(found))
