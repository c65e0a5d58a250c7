"""What a run brought to its nodes, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cordee.core.units import format_duration, format_size


def staged_words(staged: Iterable[dict[str, Any]]) -> list[str]:
    """Return a line for each data set and kind of place that it was brought to, of the journal's `node_staged`."""
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in staged:
        by_place.setdefault((one["data"], one["tier"]), []).append(one)
    return [_line(name, tier, nodes) for (name, tier), nodes in by_place.items()]


def _line(name: str, tier: str, nodes: list[dict[str, Any]]) -> str:
    count = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}"
    if tier == "shared":
        return f"{name}: read in place by {count}, where it does not fit"
    read, given = sum(one["source_bytes"] for one in nodes), sum(one.get("peer_bytes", 0) for one in nodes)
    size, longest_s = max(one["bytes"] for one in nodes), max(one.get("seconds", 0.0) for one in nodes)
    place = "in the memory" if tier == "memory" else "on the disk"
    there = f"{name}: {format_size(size)} {place} of {count}"
    if not read and not given:
        return f"{there}; it was there already"
    passed_on = f", {format_size(given)} given from node to node" if given else ""
    return f"{there} within {format_duration(longest_s)}; {format_size(read)} read from the source{passed_on}"
