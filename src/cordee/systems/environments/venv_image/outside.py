"""What an environment needs that is not inside it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.systems.environments.venv_image.interpreter import Interpreter

_MAPPING = re.compile(r"^(?:MAPPING|NAMESPACES)\b[^=]*=\s*(\{.*\})\s*$", re.MULTILINE)
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/proc")


class Outside(NamedTuple):
    """Something outside that the environment leads to.

    Attributes:
        path: where it is.
        text: what leads there, for a person.
        mount: whether it has to be mounted too for the pack to work elsewhere than on this machine's own root.
    """

    path: Path
    text: str
    mount: bool


def outside_of(
    folder: Path, entries: list[SquashfsEntry], interpreter: Interpreter, with_python: bool
) -> list[Outside]:
    """Return what is outside, each path once."""
    found: dict[Path, Outside] = {}
    for each in (
        *_installed_in_place(folder, interpreter),
        *_links(folder, entries),
        *([] if with_python else _base(folder, interpreter)),
        *_system_packages(folder, interpreter),
    ):
        found.setdefault(each.path, each)
    return list(found.values())


def _installed_in_place(folder: Path, interpreter: Interpreter) -> Iterator[Outside]:
    """Yield source folders of editable installs, and whatever else .pth files add to the path."""
    for site in interpreter.site_folders:
        for path in sorted(site.glob("*.pth")):
            for line in path.read_text(errors="replace").splitlines():
                target = line.strip()
                if target and not target.startswith(("#", "import ", "import\t")):
                    yield from _unless_inside(folder, site / target, f"{path.name} (an editable install, or a .pth)")
        for path in sorted(site.glob("__editable__*finder.py")):
            for match in _MAPPING.finditer(path.read_text(errors="replace")):
                for target in _paths_in(match[1]):
                    yield from _unless_inside(folder, Path(target), f"{path.name} (an editable install)")


def _paths_in(literal: str) -> list[str]:
    try:
        values = ast.literal_eval(literal).values()
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [path for value in values for path in ([value] if isinstance(value, str) else value)]


def _unless_inside(folder: Path, target: Path, what: str) -> Iterator[Outside]:
    real = Path(os.path.normpath(target))
    inside = real.is_relative_to(folder) or real.is_relative_to(folder.resolve())
    if not inside and real.exists():  # what is not there helps nobody in the folder either
        yield Outside(real, f"{what} leads to {real}, which is not packed", True)


def _links(folder: Path, entries: list[SquashfsEntry]) -> Iterator[Outside]:
    for entry in entries:
        if entry.kind == "link" and not (entry.name.startswith("bin/python") and entry.name.count("/") == 1):
            target = Path(os.path.normpath(folder / Path(entry.name).parent / entry.target))
            if not target.is_relative_to(folder):
                yield Outside(target, f"the link {entry.name} leads to {target}, which is not packed", target.exists())


def _base(folder: Path, interpreter: Interpreter) -> Iterator[Outside]:
    base = interpreter.base_prefix
    if base in (folder, folder.resolve()):
        return
    system = str(base).startswith(_SYSTEM)
    if not system:
        text = f"its Python is {interpreter.base_executable}: mount {base} as well, or pack --with-python"
        yield Outside(base, text, True)


def _system_packages(folder: Path, interpreter: Interpreter) -> Iterator[Outside]:
    try:
        config = (folder / "pyvenv.cfg").read_text()
    except OSError:
        return
    if re.search(r"^include-system-site-packages\s*=\s*true\s*$", config, re.MULTILINE | re.IGNORECASE):
        text = f"it sees the packages of {interpreter.base_prefix} too, which are not packed"
        yield Outside(interpreter.base_prefix / "lib", text, False)
