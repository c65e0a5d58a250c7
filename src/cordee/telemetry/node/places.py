"""Places of ranks that their scripts said by `cordee.layout`, on their way into telemetry as facts of group `rank`."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from cordee.telemetry.node.blocklog import encode_facts
from cordee.wire.facts import ChannelFact, LayoutFact


def place_record(node: str, rank: int, attempt: int, told: Iterable[tuple[float, ChannelFact]]) -> bytes:
    """Return the last place among the facts that a rank told as a FACTS record, empty where there is none."""
    said = [(moment, fact) for moment, fact in told if isinstance(fact, LayoutFact)]
    if not said:
        return b""
    moment, fact = said[-1]
    about = place_fact(fact.place, fact.sizes, attempt, fact.source, fact.refused)
    return encode_facts(node, "rank", moment, {str(rank): about}, {})


def place_fact(
    place: Mapping[str, int], sizes: Mapping[str, int], attempt: int, source: str, refused: str = ""
) -> dict[str, Any]:
    """Return where a rank stands as a fact of it."""
    return {
        "place": dict(place),
        "sizes": dict(sizes),
        "place_attempt": attempt,
        "place_source": source,
        "place_refused": refused,
    }
