"""Places of ranks that their scripts said by `cordee.layout`, on their way into telemetry as facts of group `rank`."""

from __future__ import annotations

from typing import Any, Mapping

from cordee.telemetry.node.blocklog import encode_facts
from cordee.wire.channel import PLACE, PLACED_BY, Event

_REFUSED = f"{PLACE}refused"


def split_places(node: str, rank: int, attempt: int, events: list[Event]) -> tuple[list[Event], bytes]:
    """Return the events without those of `cordee.layout`, and those as a FACTS record, empty when there are none."""
    said = [event for event in events if _is_place(event)]
    if not said:
        return events, b""
    kept = [event for event in events if not _is_place(event)]
    _, moment, _, numbers = said[-1]
    return kept, encode_facts(node, "rank", moment, {str(rank): _decoded(numbers, attempt)}, {})


def _is_place(event: Event) -> bool:
    return event[2] is None and next(iter(event[3]), "").startswith((PLACE, PLACED_BY))


def _decoded(numbers: Mapping[str, float], attempt: int) -> dict[str, Any]:
    place: dict[str, int] = {}
    sizes: dict[str, int] = {}
    source = "call"
    for name, number in numbers.items():
        if not abs(number) < 1 << 53:
            continue
        _, _, words = name.partition(PLACE)
        if name.startswith(PLACED_BY):
            source = name[len(PLACED_BY) :]
        elif words.endswith("/size"):
            sizes[words[: -len("/size")]] = int(number)
        elif words and name != _REFUSED:
            place[words] = int(number)
    refused = "cordee.layout was called with what it does not understand" if _REFUSED in numbers else ""
    return place_fact(place, sizes, attempt, source, refused)


def place_fact(
    place: dict[str, int], sizes: dict[str, int], attempt: int, source: str, refused: str = ""
) -> dict[str, Any]:
    """Return where a rank stands as a fact of it."""
    return {
        "place": place,
        "sizes": sizes,
        "place_attempt": attempt,
        "place_source": source,
        "place_refused": refused,
    }
