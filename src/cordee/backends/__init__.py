"""Where runs run: one object for each back end, and the only place that knows their names.

The built-in ones stand in a table of strings. Others say where theirs is by an entry point of the group `cordee.backends`,
which is looked at for names that the table does not have and for nothing else.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, Optional

from cordee.backends.node._base import Abilities, Backend
from cordee.core.errors import SubmitError

__all__ = [
    "BUILT_IN",
    "HERE",
    "Abilities",
    "Backend",
    "abilities",
    "backend",
    "backend_on_node",
    "is_known",
    "known",
    "load",
]

HERE = "local"  # the back end, and the cluster, that is meant where nothing is named
BUILT_IN = {"local": "cordee.backends.local:BACKEND", "slurm": "cordee.backends.slurm:BACKEND"}
_GROUP = "cordee.backends"
# What a plan may ask for is left open as long as nobody can say what becomes of it.
_NOBODYS = Abilities(queues=True, several_machines=True)


def known() -> list[str]:
    """Return the names of all back ends, those of others too."""
    return sorted({*BUILT_IN, *_of_others(tuple(sys.path))})


def is_known(name: str) -> bool:
    """Return whether there is a back end of this name; those of others are looked at where the table does not have it."""
    return name in BUILT_IN or name in _of_others(tuple(sys.path))


def backend(name: str) -> Backend:
    """Return a back end by its name.

    Raises:
        SubmitError: there is none of this name, or it cannot be loaded.
    """
    return _loaded(name, BUILT_IN.get(name) or part_of(name))


def part_of(name: str) -> Optional[str]:
    """Return where the back end of others lies that has this name, as `module:object`; None: a built-in one, or none."""
    return None if name in BUILT_IN else _of_others(tuple(sys.path)).get(name)


def backend_on_node(name: str, part: Optional[str]) -> Backend:
    """Return the back end of a plan where its run runs: nodes need not have the packages that a plan was made with.

    Args:
        name: as the plan has it.
        part: where it lies, as the plan has it for a back end of others, which is in the run's node.zip.

    Raises:
        SubmitError: there is none of this name, or it cannot be loaded.
    """
    return _loaded(name, BUILT_IN.get(name) or part)


def abilities(name: str) -> Abilities:
    """Return what a back end can do; of an unknown one that it is a scheduler somewhere."""
    try:
        return backend(name).abilities
    except SubmitError:
        return _NOBODYS


def load(part: str) -> Any:
    """Return an object that is named as `module:object`."""
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


@lru_cache(maxsize=None)
def _of_others(path: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import entry_points

    points: Any = entry_points()
    chosen = points.select(group=_GROUP) if hasattr(points, "select") else points.get(_GROUP, ())
    return {point.name: point.value for point in chosen}


@lru_cache(maxsize=None)
def _loaded(name: str, part: Optional[str]) -> Backend:
    if part is None:
        raise SubmitError(
            f"this version cannot submit to {name!r}",
            given=name,
            allowed=known(),
            next=f"choose a cluster whose profile has one of these schedulers, or `--on {HERE}`",
        )
    try:
        found = load(part)
    except Exception as error:  # a package of somebody else may raise anything
        raise SubmitError(
            f"the back end {name} cannot be loaded: {error}", given=part, next="mend or remove the package that has it"
        ) from error
    if not isinstance(found, Backend) or found.name != name:
        raise SubmitError(
            f"this is not the back end {name}", given=part, allowed=f'a cordee.backends.Backend with name = "{name}"'
        )
    return found
