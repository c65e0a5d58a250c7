"""From a finding to the page that shows what it rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

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


def _link(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `{page, query}` of the most particular place that the facts name."""
    query = {
        key: str(facts[key]) for key in ("group", "metric", "start", "stop", "sort", "by") if facts.get(key) is not None
    }
    if "metric" in query:
        return {"page": "heat", "query": query}
    if facts.get("hang") is not None:
        return {"page": "hangs", "query": {"hang": str(facts["hang"])}}
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
