"""From a finding to the page that shows what it rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cordee.core.units import parse_utc

_SPEAK_AGAINST = ("warn", "fail")
_PAGES = {
    "log-dropped": "logs",
    "samples-lost": "heat",
    "telemetry-dropped": "heat",
    "metric-names-capped": "run",
    "code-changed": "run",
    "control-trouble": "run",
}


def finding_line(document: Mapping[str, Any], at: float | None = None, nodes: Collection[str] = ()) -> dict[str, Any]:
    """Return a finding as pages show it, with a link to its evidence where its facts name a place.

    Args:
        document: as `Finding.document()` gives it.
        at: when it was written, UTC epoch seconds.
        nodes: the run's, to know one by its name.
    """
    facts = document.get("evidence")
    link = _link(facts if isinstance(facts, Mapping) else {})
    if link is None:
        link = _named(document, nodes)
    return {
        "severity": document.get("severity", "info"),
        "code": document.get("rule", ""),
        "text": document.get("text", ""),
        "given": document.get("given"),
        "allowed": document.get("allowed"),
        "next": document.get("next"),
        "at": at,
        "evidence": link,
        "facts": facts,
    }


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


def _link(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `{page, query}` of the most particular place that the facts name."""
    query = {
        key: str(facts[key]) for key in ("group", "metric", "start", "stop", "sort", "by") if facts.get(key) is not None
    }
    if "metric" in query:
        return {"page": "heat", "query": query}
    ranks = facts.get("ranks")
    if isinstance(ranks, list) and ranks:
        return {"page": "rank", "query": {"rank": str(ranks[0])}}
    if facts.get("rank") is not None:
        return {"page": "rank", "query": {"rank": str(facts["rank"])}}
    if facts.get("node"):
        return {"page": "node", "query": {"node": str(facts["node"])}}
    if facts.get("page"):
        return {
            "page": str(facts["page"]),
            "query": {str(k): str(v) for k, v in dict(facts.get("query") or {}).items()},
        }
    return None


def _named(document: Mapping[str, Any], nodes: Collection[str]) -> dict[str, Any] | None:
    """Return the page of the node that a finding speaks of, else the page that shows findings of its kind."""
    words = [str(document.get("given")), *(word.strip(":,;()'") for word in str(document.get("text", "")).split())]
    node = next((word for word in words if word in nodes), None)
    if node is not None:
        return {"page": "node", "query": {"node": node}}
    page = _PAGES.get(str(document.get("rule", "")))
    return {"page": page, "query": {}} if page else None


def finding_times(events: list[dict[str, Any]]) -> list[float]:
    """Return when each finding of a journal was written, in their order."""
    return [parse_utc(event["time"]) for event in events if event["event"] == "finding"]
