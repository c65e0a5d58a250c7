"""What `cordee nodes history` and `cordee nodes offenders` show, as JSON-ready documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cordee.core.units import utc_text
from cordee.job.fleet_site import OffenderPolicy
from cordee.systems.vetting.fleet.audit import Deed
from cordee.systems.vetting.fleet.index import FleetIndex
from cordee.systems.vetting.fleet.observations import NodeRecord
from cordee.systems.vetting.fleet.policy import Conviction, convictions


def list_vettings(index: FleetIndex, since: float) -> list[dict[str, Any]]:
    """Return the vettings since a time, the oldest first, each with the nodes that were found wanting."""
    wanting: dict[str, list[str]] = {}
    query = "SELECT vetting, node FROM nodes WHERE at >= ? AND verdict IN ('bad', 'unknown') ORDER BY node"
    for row in index.rows(query, since):
        wanting.setdefault(row["vetting"], []).append(row["node"])
    return [
        {
            "id": row["id"],
            "at": utc_text(row["at"]),
            "cluster": row["cluster"],
            "job": row["job"],
            "run": row["run"],
            "user": row["user"],
            "protocol": row["protocol"],
            "verdict": row["verdict"],
            "nodes": row["nodes"],
            "wanting": wanting.get(row["id"], []),
            "reason": row["reason"],
        }
        for row in index.rows("SELECT * FROM vettings WHERE at >= ? ORDER BY at, id", since)
    ]


def node_history(index: FleetIndex, node: str, since: float, checks: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the vettings of one node since a time, the oldest first.

    Args:
        index: refreshed.
        node: its name.
        since: UTC epoch seconds.
        checks: show these with their values even where they passed; without any, only what is not well is shown.
    """
    wanted = set(checks)
    results: dict[str, list[dict[str, Any]]] = {}
    for row in index.rows("SELECT * FROM results WHERE node = ? AND at >= ? ORDER BY chk", node, since):
        if row["chk"] in wanted or (not wanted and row["status"] in ("warn", "fail", "unknown")):
            keys = ("status", "value", "unit", "threshold", "cause", "rule", "kind", "evidence")
            results.setdefault(row["vetting"], []).append({"check": row["chk"], **{key: row[key] for key in keys}})
    query = (
        "SELECT nodes.*, vettings.job, vettings.run, vettings.protocol FROM nodes JOIN vettings"
        " ON vettings.id = nodes.vetting WHERE node = ? AND nodes.at >= ? ORDER BY nodes.at, vetting"
    )
    return [
        {
            "vetting": row["vetting"],
            "at": utc_text(row["at"]),
            "job": row["job"],
            "run": row["run"],
            "protocol": row["protocol"],
            "verdict": row["verdict"],
            "results": results.get(row["vetting"], []),
        }
        for row in index.rows(query, node, since)
        if not wanted or row["vetting"] in results
    ]


def rank_offenders(
    records: Mapping[str, NodeRecord], policy: OffenderPolicy, deeds: Sequence[Deed] = ()
) -> list[dict[str, Any]]:
    """Return the nodes with faults, the worst first: hard faults, then confirmed ones, then by the jobs that met them."""
    found = []
    for record in records.values():
        accused = convictions(record, policy)
        if accused:
            drains = sum(deed.action == "drain" and deed.phase == "done" for deed in deeds if deed.node == record.node)
            found.append((accused, _offender(record, accused, drains)))

    def grave(entry: tuple[list[Conviction], dict[str, Any]]) -> tuple[Any, ...]:
        accused, document = entry
        first = accused[0]
        return (first.kind != "hard", not first.confirmed, -document["jobs"], -len(document["rules"]), document["node"])

    return [document for _, document in sorted(found, key=grave)]


def _offender(record: NodeRecord, accused: Sequence[Conviction], drains: int) -> dict[str, Any]:
    faults = [fault for each in accused for fault in each.faults]
    return {
        "node": record.node,
        "kind": accused[0].kind,
        "confirmed": accused[0].confirmed,
        "vettings": record.vettings,
        "jobs": len({fault.job for fault in faults}),
        "partners": len(frozenset[str]().union(*(fault.partners for fault in faults))),
        "drains": drains,
        "last": utc_text(max(fault.at for fault in faults)),
        "rules": [_accusation(each) for each in accused],
    }


def _accusation(conviction: Conviction) -> dict[str, Any]:
    return {
        "rule": conviction.rule,
        "kind": conviction.kind,
        "scope": conviction.scope,
        "action": conviction.action,
        "confirmed": conviction.confirmed,
        "missing": conviction.missing,
        "evidence": [fault.document() for fault in conviction.faults],
    }
