"""Failures of attempts, and what speaks against nodes, as findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.core.units import parse_utc

_SPEAK_AGAINST = ("warn", "fail")


def failure_line(failure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a failure of an attempt as a finding, with the log of the rank that failed first."""
    rank, node = failure.get("rank"), failure.get("node")
    who = f"rank {rank}" if rank is not None else "the attempt"
    where = f" on {node}" if node else ""
    what = failure.get("text") or failure.get("message") or "failed"
    at = failure.get("time")
    query = {"rank": str(rank)} if rank is not None else {}
    return {
        "severity": "error",
        "code": "attempt-failed",
        "text": f"attempt {failure.get('attempt')}: {what}"
        if failure.get("text")
        else f"attempt {failure.get('attempt')}: {who}{where}: {what}",
        "given": None,
        "allowed": None,
        "next": None,
        "at": at,
        "evidence": {"page": "logs", "query": {**query, **({"before": str(at + 1.0)} if at else {})}},
        "facts": dict(failure),
    }


def node_lines(nodes: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what speaks against nodes as findings: excluded, lost, bad."""
    found = []
    for node in nodes:
        if node["verdict"] not in ("bad", "suspect") and node["role"] not in ("excluded", "lost"):
            continue
        found.append(
            {
                "severity": "warn",
                "code": f"node-{node['role'] if node['role'] in ('excluded', 'lost') else node['verdict']}",
                "text": _node_text(node),
                "given": None,
                "allowed": None,
                "next": None,
                "at": None,
                "evidence": {"page": "node", "query": {"node": node["node"]}},
                "facts": None,
            }
        )
    return found


def _node_text(node: Mapping[str, Any]) -> str:
    seen = [
        str(one.get("evidence") or one.get("check")) for one in node["results"] if one.get("status") in _SPEAK_AGAINST
    ]
    why = str(node["reason"] or "; ".join(seen[:2]))
    because = f" ({why})" if why else ""
    if node["role"] in ("excluded", "lost"):
        return f"{node['node']} was {'left out' if node['role'] == 'excluded' else 'lost'}{because}"
    what = "has a warning" if node["verdict"] == "suspect" else "failed vetting"
    return (
        f"{node['node']} {what}{because} but {'is still in use' if node['role'] == 'active' else 'may still be used'}"
    )


def finding_times(events: list[dict[str, Any]]) -> list[float]:
    """Return when each finding of a journal was written, in their order."""
    found = [event for event in events if event["event"] == "finding"]
    replaced = {event["replaces"] for event in found if "replaces" in event}
    return [parse_utc(event["time"]) for event in found if event["finding"].get("text") not in replaced]
