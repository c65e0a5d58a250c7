"""`cordee.layout`: where a rank stands in the training's parallelism, so that pictures can be sorted and grouped by it."""

from __future__ import annotations

import os
import re
from typing import Any, Optional

from cordee.client import megatron
from cordee.client import rank as _rank
from cordee.wire.facts import LayoutFact

_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,31}$")
_MOST_DIMENSIONS = 8
_ACCEPTED = "indices by name (dp=3, tp=1), or (index, size); a torch DeviceMesh; Megatron's args or megatron.core.parallel_state"

_said: Optional[LayoutFact] = None
_called = False
_dimensions = 0


def layout(where: Any = None, /, **dimensions: Any) -> None:
    """Say where this rank stands: `cordee.layout(dp=3, tp=1)`; kept with the rank, never waits, never raises.

    Every rank calls it once, when its groups are made; a later call replaces the earlier. Outside a run it does nothing.
    What cannot be understood is warned of once and shows as a finding of the run.

    Args:
        where: instead of names: a torch `DeviceMesh` (its named dimensions and this rank's coordinate), Megatron's `args`,
            or the module `megatron.core.parallel_state` after `initialize_model_parallel`.
        dimensions: an index from 0, or `(index, size)`, by dimension: dp, tp, pp, ep, cp, or any other name.
    """
    global _called
    _called = True
    try:
        found, source = _coordinates(where, dimensions)
        fact = layout_fact(found, source)
    except Exception as error:
        _rank.tell_once(f"cordee.layout: {error}; accepted are {_ACCEPTED}; this rank's place is not recorded")
        fact = LayoutFact(refused="cordee.layout was called with what it does not understand")
    say(fact)


def mesh_made(mesh: Any) -> None:
    """Take the place from a mesh that the script has just made, if it has names and all ranks; never raises.

    What `cordee.layout` was given counts before it, and of several meshes the one with most dimensions.
    """
    global _dimensions
    try:
        names = mesh.mesh_dim_names
        if _called or not names or len(names) <= _dimensions or mesh.size() != int(os.environ.get("WORLD_SIZE", "1")):
            return
        fact = layout_fact(mesh_coordinates(mesh), "mesh")
    except Exception:
        return
    _dimensions = len(names)
    say(fact)


def state_made(state: Any) -> None:
    """Take the place from Megatron's groups, which were just made; what `cordee.layout` was given counts before; never raises."""
    try:
        found = megatron.coordinates_of_state(state)
        if found and not _called:
            say(layout_fact(found, "megatron"))
    except Exception:
        return


def say(fact: LayoutFact) -> None:
    """Record a place, unless it was the last that was said."""
    global _said
    if fact != _said:
        _said = fact
        _rank.tell_fact("cordee.layout", fact)


def layout_fact(found: megatron.Coordinates, source: str) -> LayoutFact:
    """Return a place as it travels in the channel.

    Raises:
        ValueError: a name or a number is not one.
    """
    if not 0 < len(found) <= _MOST_DIMENSIONS:
        raise ValueError(f"{len(found)} dimensions were given, 1 to {_MOST_DIMENSIONS} are kept")
    for name in found:
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is no name of a dimension")
    place = {name: _whole(index, name) for name, (index, _) in found.items()}
    sizes = {name: _whole(size, name) for name, (_, size) in found.items() if size is not None}
    return LayoutFact(place, sizes, source)


def mesh_coordinates(mesh: Any) -> megatron.Coordinates:
    """Return this rank's (index, size) by the names of a DeviceMesh's dimensions; `dim0` and so on where they have none.

    Raises:
        ValueError: the rank is not in the mesh.
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank is not in the mesh")
    names = mesh.mesh_dim_names or [f"dim{at}" for at in range(len(coordinate))]
    return {str(name): (int(index), int(mesh.size(at))) for at, (name, index) in enumerate(zip(names, coordinate))}


def _coordinates(where: Any, dimensions: dict[str, Any]) -> tuple[megatron.Coordinates, str]:
    if where is None:
        return {name: _pair(value, name) for name, value in dimensions.items()}, "call"
    if dimensions:
        raise ValueError("both an object and names were given")
    if hasattr(where, "get_coordinate"):
        return mesh_coordinates(where), "mesh"
    settings = megatron.settings_of_namespace(where)
    if settings:
        return megatron.coordinates(settings, *_number_and_world(where)), "megatron"
    found = megatron.coordinates_of_state(where)
    if found:
        return found, "megatron"
    raise ValueError(f"{type(where).__name__} tells no place")


def _pair(value: Any, name: str) -> tuple[int, Optional[int]]:
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name} has {len(value)} numbers, not (index, size)")
        return _whole(value[0], name), _whole(value[1], name)
    return _whole(value, name), None


def _whole(value: Any, name: str) -> int:
    whole = int(value)
    if whole != value or isinstance(value, (str, bool)):
        raise ValueError(f"{name} is {value!r}, no integer")
    return whole


def _number_and_world(namespace: Any) -> tuple[int, int]:
    """Return this rank's number and the size of its world: Megatron's own, else the launcher's."""
    rank, world = getattr(namespace, "rank", None), getattr(namespace, "world_size", None)
    rank = os.environ.get("RANK", "0") if rank is None else rank
    world = os.environ.get("WORLD_SIZE", "1") if world is None else world
    return int(rank), int(world)
