"""Who the devices of a group are, in the order of a heat map's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.core.errors import CordeeError
from cordee.runs.state import RunState
from cordee.telemetry.store.reader import Run


def describe_devices(
    run: Run, group: str, state: RunState, places: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return name, node, ranks, model and place of each device of a group.

    Args:
        places: where ranks stand, by rank.

    Raises:
        UsageError: there is no such group.
    """
    known = facts_of(run, group)
    homes = {rank.rank: rank.node for rank in state.ranks}
    by_node: dict[str, list[int]] = {}
    for rank, node in homes.items():
        by_node.setdefault(node, []).append(rank)
    found = []
    for device in run.source(group).devices:
        facts = dict(known.get(str(device), {}))
        row: dict[str, Any] = {**facts, "name": device, "node": facts.get("node")}
        if group == "rank":
            row["node"] = row["node"] or homes.get(device)
            row["ranks"] = [device]
        elif group == "node":
            row["node"] = str(device)
            row["ranks"] = sorted(by_node.get(str(device), []))
        else:
            row["ranks"] = sorted(int(rank) for rank in facts.get("ranks") or [] if str(rank).isdigit())
        place = places.get(row["ranks"][0], {}) if len(row["ranks"]) == 1 else {}
        row["place"], row["sizes"] = place.get("place"), place.get("sizes")
        found.append(row)
    return found


def facts_of(run: Run, group: str) -> dict[str, dict[str, Any]]:
    """Return what is known of a group's devices by device, with the node."""
    try:
        known = run.facts(group)
    except CordeeError:
        return {}
    return {
        device: {**facts, "node": node}
        for node, of_node in known.items()
        for device, facts in of_node["devices"].items()
    }
