"""A check of one's own to begin with: `cordee vet --template DIR` writes it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cordee.core.errors import UsageError

_TEMPLATE = ("README.md", "disk_speed.py", "test_disk_speed.py", "protocol.yaml")


def write_template(folder: Path) -> list[Path]:
    """Write a check of one's own to begin with, its test, a protocol that uses it, and what to do; return the files.

    Raises:
        UsageError: a file of that name is there; nothing was written.
    """
    targets = [folder / name for name in _TEMPLATE]
    there = [str(target) for target in targets if target.exists()]
    if there:
        raise UsageError("there is something already", given=", ".join(there), next="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    source = files("cordee.systems.vetting") / "check_template"
    for target in targets:
        target.write_text((source / f"{target.name}.txt").read_text())
    return targets
