"""The sentences of a verdict."""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.judge.unknowns import BUSY, is_only_busy

_MOST_NAMED = 3
_LONGEST_EVIDENCE = 200


def reason(
    outcome: str,
    aborts: list[str],
    excluded: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
    unavailable: list[dict[str, Any]],
    links: list[dict[str, Any]],
) -> str:
    """Return in one sentence why the allocation's verdict is what it is.

    Args:
        outcome: the verdict.
        aborts: why it is abort.
        excluded: the nodes left out.
        nodes: all of them.
        unavailable, links: as in the allocation document.
    """
    if outcome == "abort":
        return _shorten(aborts[:2], len(aborts))
    parts = []
    if excluded:
        parts.append(f"{len(excluded)} of {len(nodes)} nodes left out: {culprits(excluded)}")
    else:
        suspects = [node for node in nodes if node["verdict"] == "suspect" and _remark(node)]
        busy = [node for node in nodes if is_only_busy(node["results"])]
        healthy = "the node takes part" if len(nodes) == 1 else f"all {len(nodes)} nodes take part"
        parts.append(healthy + (f", suspect: {culprits(suspects)}" if suspects else ""))
        if busy:
            parts.append(f"unknown, because the machine is busy: {culprits(busy)}")
    here = [
        entry for entry in unavailable if entry["cause"] != BUSY and (entry["cause"] == "closed" or not entry["abort"])
    ]
    parts += [f"{entry['check']} could not be tested here ({_cut(entry['reason'])})" for entry in here[:2]]
    parts += [f"link fault: {_cut(link['text'])}" for link in links[:2]]
    return "; ".join(parts)


def culprits(nodes: list[dict[str, Any]]) -> str:
    """Return the first few nodes, each with what speaks against it."""
    named = [f"{node['node']} ({_remark(node) or node['verdict']})" for node in nodes[:_MOST_NAMED]]
    more = len(nodes) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def many_silent(silent: list[dict[str, Any]], total: int) -> str:
    names = _names(silent)
    return f"{len(silent)} of {total} nodes did not answer ({names}): they, or the network between us, are down"


def untested(entry: dict[str, Any], total: int) -> str:
    nodes = entry["nodes"]
    where = f"on {nodes[0]}" if len(nodes) == 1 else f"on {len(nodes)} of {total} nodes"
    return f"{entry['check']} could not be tested {where}, first {nodes[0]}: {_cut(entry['reason'])}; what was not tested is not healthy"


def confusion(entry: dict[str, Any]) -> str:
    return f"{entry['check']}: {entry['text']}; the cause is shared (setup or threshold), not a node"


def nothing_ran(idle: list[dict[str, Any]], total: int) -> str:
    return f"not one check really ran on {len(idle)} of {total} nodes: {culprits(idle)}"


def none_left(excluded: list[dict[str, Any]]) -> str:
    return f"no node is left: {culprits(excluded)}" if excluded else "there are no nodes"


def too_few(left: int, least: int, excluded: list[dict[str, Any]]) -> str:
    text = f"{left} nodes are left where {least} are needed"
    return f"{text}; left out: {culprits(excluded)}" if excluded else text


def most_excluded(excluded: list[dict[str, Any]], total: int) -> str:
    return f"{len(excluded)} of {total} nodes, more than half, cannot be used: {culprits(excluded)}"


def _remark(node: dict[str, Any]) -> str:
    """Return what speaks most against a node: its check and the evidence."""
    best, severity = "", 0
    for result in node["results"]:
        weight = _weight(result)
        if weight > severity:
            best, severity = f"{result.get('name') or result['check']}: {_cut(result.get('evidence') or '')}", weight
    return best


def _weight(result: dict[str, Any]) -> int:
    """Return how much a result speaks against its node; what is unavailable at the site, or held against nobody, least."""
    order = {"warn": 2, "unknown": 3, "fail": 4}.get(result["status"], 0)
    if order == 0 or (result.get("unavailable") and result.get("cause") == "closed"):
        return 0
    if result.get("confused") or result.get("unavailable"):
        return 1
    return order + (3 if result.get("required", True) else 0)


def _names(nodes: list[dict[str, Any]]) -> str:
    named = ", ".join(node["node"] for node in nodes[:_MOST_NAMED])
    more = len(nodes) - _MOST_NAMED
    return named + (f" and {more} more" if more > 0 else "")


def _cut(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST_EVIDENCE else line[: _LONGEST_EVIDENCE - 3] + "..."


def _shorten(reasons: list[str], total: int) -> str:
    more = total - len(reasons)
    return "; ".join(reasons) + (f"; and {more} more reasons" if more > 0 else "")
