"""Where ranks stand, as a run knows it: node, mesh coordinates, and what is known against the node."""

from __future__ import annotations

from typing import Any

from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay

_HARDWARE = "hardware-"


def add_places(findings: list[dict[str, Any]], folder: RunFolder, state: RunState) -> None:
    """Add to each finding `places[{rank, node, mesh, hardware[]}]` of its ranks, or suspects."""
    mesh = mesh_of(folder) if findings else {}
    nodes = {rank.rank: rank.node for rank in state.ranks}
    about = {node.node: node for node in state.nodes}
    for finding in findings:
        finding["places"] = []
        for rank in (finding["ranks"] or finding["suspects"])[:64]:
            node = nodes.get(rank, "")
            hardware = [
                one.text for one in state.findings if one.rule.startswith(_HARDWARE) and _names(one.evidence, node)
            ]
            known = about.get(node)
            if known is not None and known.verdict in ("suspect", "bad"):
                hardware.append(f"vetting found it {known.verdict}: {known.reason or 'see its results'}")
            finding["places"].append({"rank": rank, "node": node, "mesh": mesh.get(rank, {}), "hardware": hardware})


def state_of(folder: RunFolder) -> RunState:
    """Return the run's state now."""
    return replay(read_journal(folder.journal), folder.id)


def _names(evidence: Any, node: str) -> bool:
    if not node or not isinstance(evidence, dict):
        return False
    nodes = evidence.get("nodes", [])
    return evidence.get("node") == node or (isinstance(nodes, list) and node in nodes)


def mesh_of(folder: RunFolder) -> dict[int, dict[str, int]]:
    """Return the index of each rank in each dimension, where ranks told it."""
    from cordee.telemetry.store.placement import placement
    from cordee.telemetry.store.reader import open_run

    try:
        return {rank: told["place"] for rank, told in placement(open_run(folder.root)).items()}
    except (OSError, ValueError):
        return {}
