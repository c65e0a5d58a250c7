"""Places of ranks on their way into telemetry: what `cordee.layout` said, or what their command says, as facts of group `rank`."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from cordee.client import megatron
from cordee.client.layout import BY, PREFIX
from cordee.control.agent.world import AttemptWorld
from cordee.telemetry.node.blocklog import encode_facts
from cordee.wire.channel import Event

_REFUSED = f"{PREFIX}refused"


def split_places(node: str, rank: int, attempt: int, events: list[Event]) -> tuple[list[Event], bytes]:
    """Return the events without those of `cordee.layout`, and those as a FACTS record, empty when there are none."""
    said = [event for event in events if _is_place(event)]
    if not said:
        return events, b""
    kept = [event for event in events if not _is_place(event)]
    _, moment, _, numbers = said[-1]
    return kept, encode_facts(node, "rank", moment, {str(rank): _decoded(numbers, attempt)}, {})


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
            about[str(rank)] = _fact({}, {}, world.attempt, "settings", str(error))
            continue
        place = {name: index for name, (index, _) in found.items()}
        sizes = {name: size for name, (_, size) in found.items() if size is not None}
        about[str(rank)] = _fact(place, sizes, world.attempt, "settings")
    return encode_facts(world.node, "rank", moment, about, {})


def _is_place(event: Event) -> bool:
    return event[2] is None and next(iter(event[3]), "").startswith((PREFIX, BY))


def _decoded(numbers: Mapping[str, float], attempt: int) -> dict[str, Any]:
    place: dict[str, int] = {}
    sizes: dict[str, int] = {}
    source = "call"
    for name, number in numbers.items():
        if not abs(number) < 1 << 53:
            continue
        _, _, words = name.partition(PREFIX)
        if name.startswith(BY):
            source = name[len(BY) :]
        elif words.endswith("/size"):
            sizes[words[: -len("/size")]] = int(number)
        elif words and name != _REFUSED:
            place[words] = int(number)
    refused = "cordee.layout was called with what it does not understand" if _REFUSED in numbers else ""
    return _fact(place, sizes, attempt, source, refused)


def _fact(place: dict[str, int], sizes: dict[str, int], attempt: int, source: str, refused: str = "") -> dict[str, Any]:
    return {
        "place": place,
        "sizes": sizes,
        "place_attempt": attempt,
        "place_source": source,
        "place_refused": refused,
    }
