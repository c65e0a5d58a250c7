"""Checks of other people: where their classes are looked for, and what they declare.

A class is `package.module:Class` in a folder that the profile allows, `path/to/file.py:Class` below one, or the name of an
entry point of the group `cordee.checks`. What it declares is asked in a process of its own: nothing of it runs here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cordee.machine.foreign_files import parse_json
from cordee.systems.vetting.node.checks import Parameter
from cordee.systems.vetting.protocol.values import FORMS

GROUP = "cordee.checks"
_CLASS = re.compile(r"(?P<module>[\w./~-]+):(?P<name>[^\W\d]\w*)\Z")
_PATIENCE_S = 30.0
_ASK = """
import sys
sys.path = [entry for entry in sys.path if entry]
import importlib, importlib.util, json
from dataclasses import asdict
from cordee.systems.vetting.node.checks import Check
place, _, name = sys.argv[1].rpartition(":")
if place.endswith(".py"):
    spec = importlib.util.spec_from_file_location("cordee_check", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
else:
    module = importlib.import_module(place)
check = getattr(module, name)()
if not isinstance(check, Check):
    sys.exit("it is no cordee.checks.Check")
told = {"title": check.title, "alone": bool(check.alone), "deadline_s": float(check.deadline_s)}
print(json.dumps({**told, "parameters": [asdict(parameter) for parameter in check.parameters]}))
"""


class NoClass(Exception):
    """A class cannot be used; says why, what is allowed and what to do."""

    def __init__(self, text: str, allowed: Any, next: str) -> None:
        super().__init__(text)
        self.text, self.allowed, self.next = text, allowed, next


@dataclass(frozen=True)
class Declared:
    """What a class declares; `place` is as `cordee.checks.load_check` takes it."""

    place: str
    title: str
    parameters: tuple[Parameter, ...]
    deadline_s: float
    alone: bool


def is_class(name: str) -> bool:
    """Return whether a `type` can mean a class of other people."""
    return ":" in name or name in _entry_points()


def class_names() -> list[str]:
    """Return the names that packages give to their classes."""
    return sorted(_entry_points())


def declared(name: str, base: Path, allowed: tuple[Path, ...]) -> Declared:
    """Return what the class declares that `type` names.

    Args:
        name: as in the protocol.
        base: the folder that relative paths begin at.
        allowed: the folders that classes may come from.

    Raises:
        NoClass: it is not there, not in one of these folders, cannot be loaded, or declares nonsense.
    """
    place = _entry_points().get(name) or _file(name, base, allowed)
    try:
        told = parse_json(_ask(place))
        parameters = tuple(Parameter(**{**one, "choices": tuple(one["choices"])}) for one in told["parameters"])
    except (ValueError, TypeError, KeyError) as error:
        raise NoClass(f"{name} does not declare what it takes: {error}", "a cordee.checks.Check", "correct the class")
    for parameter in parameters:
        if parameter.kind not in FORMS:
            text = f"{name} declares {parameter.name} of kind {parameter.kind}, which there is not"
            raise NoClass(text, sorted(FORMS), "correct the class")
    return Declared(place, told["title"], parameters, told["deadline_s"], told["alone"])


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _file(name: str, base: Path, allowed: tuple[Path, ...]) -> str:
    match = _CLASS.match(name)
    folders = [str(folder) for folder in allowed]
    if match is None:
        raise NoClass(
            f"{name} is not a class", "package.module:Class, or path/to/file.py:Class", "write it as one of these"
        )
    module = match["module"]
    if module.endswith(".py"):
        candidates = [(base / Path(module).expanduser()).resolve()]
    else:
        parts = module.split(".")
        candidates = [folder.joinpath(*parts).with_suffix(".py") for folder in allowed]
        candidates += [folder.joinpath(*parts, "__init__.py") for folder in allowed]
    there = [path.resolve() for path in candidates if path.is_file()]
    inside = [path for path in there if any(path.is_relative_to(folder.resolve()) for folder in allowed)]
    if inside:
        return f"{inside[0]}:{match['name']}"
    if there:
        what = "ask for its folder in [vetting] checks of the cluster profile, or put it into one of these"
        raise NoClass(f"{there[0]} is not in a folder that classes may come from", folders, what)
    what = "correct the name" if folders else "name its folder in [vetting] checks of the cluster profile"
    raise NoClass(f"there is no file for {name} in the folders of checks", folders, what)


@lru_cache(maxsize=256)
def _ask(place: str) -> str:
    """Return what a class says of itself, as JSON.

    Raises:
        NoClass: it cannot be loaded.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, place],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        text = f"{place} did not load within {_PATIENCE_S:g} s"
        raise NoClass(text, "a module that loads at once", "do no work at import") from None
    if done.returncode:
        words = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise NoClass(f"{place} cannot be loaded: {words[:500]}", "a cordee.checks.Check", "correct the class")
    return done.stdout.strip().rpartition("\n")[2]
