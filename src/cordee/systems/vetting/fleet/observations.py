"""What the history says against and for each node, as the policy weighs it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cordee.core.units import utc_text
from cordee.systems.vetting.fleet.index import PAIRS, FleetIndex


@dataclass(frozen=True)
class NodeFault:
    """One result that speaks against a node.

    Attributes:
        at: UTC epoch seconds.
        vetting: its id.
        job: the run, or the job outside of runs: what is one job to its user; empty without any.
        slurm_job: the scheduler's id of the job.
        protocol: name of the protocol that asked.
        partners: the nodes that it was held against: those of its pairs, else those of the allocation that were well.
        relative: whether the verdict rests on other nodes (peers, a pair), so that they might be to blame.
        devices: what the evidence names, as documents.
    """

    at: float
    vetting: str
    job: str
    slurm_job: str
    protocol: str
    node: str
    check: str
    rule: str
    kind: str
    scope: str
    action: str
    evidence: str
    partners: frozenset[str] = frozenset()
    relative: bool = False
    devices: tuple[dict[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as evidence, JSON-ready."""
        return {
            "at": utc_text(self.at),
            "vetting": self.vetting,
            "job": self.slurm_job or None,
            "check": self.check,
            "text": self.evidence,
            "partners": sorted(self.partners),
        }


@dataclass(frozen=True)
class Clean:
    """One vetting that found nothing wrong with a node, with the checks that really passed."""

    at: float
    vetting: str
    passed: frozenset[str]


@dataclass
class NodeRecord:
    """All that the history says of one node in the time that is looked at, the oldest first."""

    node: str
    vettings: int = 0
    faults: list[NodeFault] = field(default_factory=list)
    clean: list[Clean] = field(default_factory=list)


def read_records(
    index: FleetIndex, since: float, protocols: Iterable[str] = (), cluster: str | None = None
) -> dict[str, NodeRecord]:
    """Return what the history says since a time, by node.

    Args:
        index: refreshed.
        since: UTC epoch seconds.
        protocols: names or digests of the protocols that count; none: all.
        cluster: the cluster whose vettings count; None: all. Vettings that name no cluster count everywhere.
    """
    trusted = set(protocols)
    vettings = {row["id"]: row for row in index.rows("SELECT * FROM vettings WHERE at >= ? ORDER BY at, id", since)}
    if trusted:
        vettings = {key: row for key, row in vettings.items() if {row["protocol"], row["digest"]} & trusted}
    if cluster is not None:
        vettings = {key: row for key, row in vettings.items() if row["cluster"] in (None, cluster)}
    records: dict[str, NodeRecord] = {}
    passed: dict[tuple[str, str], set[str]] = {}
    for row in index.rows("SELECT vetting, node, chk FROM results WHERE at >= ? AND status = 'pass'", since):
        passed.setdefault((row["vetting"], row["node"]), set()).add(row["chk"])
    partners: dict[tuple[str, str], frozenset[str]] = {}
    for row in index.rows("SELECT * FROM nodes WHERE at >= ? ORDER BY at, vetting", since):
        if row["vetting"] not in vettings:
            continue
        record = records.setdefault(row["node"], NodeRecord(row["node"]))
        record.vettings += 1
        key = (row["vetting"], row["node"])
        partners[key] = frozenset(json.loads(row["partners"]))
        if row["verdict"] == "healthy":
            record.clean.append(Clean(row["at"], row["vetting"], frozenset(passed.get(key, ()))))
    faults = "SELECT * FROM results WHERE at >= ? AND counts = 1 AND rule IS NOT NULL ORDER BY at, vetting"
    for row in index.rows(faults, since):
        if row["vetting"] in vettings:
            known = partners.get((row["vetting"], row["node"]), frozenset())
            records[row["node"]].faults.append(_fault(row, vettings[row["vetting"]], known))
    return records


def _fault(row: Any, vetting: Any, partners: frozenset[str]) -> NodeFault:
    return NodeFault(
        row["at"],
        row["vetting"],
        vetting["run"] or vetting["job"] or "",
        vetting["job"] or "",
        vetting["protocol"] or "",
        row["node"],
        row["chk"],
        row["rule"],
        row["kind"] or "soft",
        row["scope"] or "node",
        row["action"] or "none",
        row["evidence"] or "",
        partners,
        row["reference"] == "peer" or row["chk"] == PAIRS,
        tuple(json.loads(row["devices"])) if row["devices"] else (),
    )
