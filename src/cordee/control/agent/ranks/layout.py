"""Places of ranks that their command says, on their way into telemetry as facts of group `rank`."""

from __future__ import annotations

from typing import Any, Sequence

from cordee.client import megatron
from cordee.control.world import AttemptWorld
from cordee.telemetry.node.blocklog import encode_facts
from cordee.telemetry.node.places import place_fact


def places_of_command(world: AttemptWorld, argv: Sequence[str], moment: float) -> bytes:
    """Return a FACTS record of where this node's ranks stand by Megatron's settings of their command; empty without such.

    Args:
        world: the attempt's world as this node sees it.
        argv: the ranks' command.
        moment: UTC epoch seconds.
    """
    settings = megatron.settings_of_command(argv)
    if not settings:
        return b""
    about: dict[str, dict[str, Any]] = {}
    for rank in world.local_ranks:
        try:
            found = megatron.coordinates(settings, rank, world.size)
        except ValueError as error:
            about[str(rank)] = place_fact({}, {}, world.attempt, "settings", str(error))
            continue
        place = {name: index for name, (index, _) in found.items()}
        sizes = {name: size for name, (_, size) in found.items() if size is not None}
        about[str(rank)] = place_fact(place, sizes, world.attempt, "settings")
    return encode_facts(world.node, "rank", moment, about, {})
